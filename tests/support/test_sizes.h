// How large the shapes of the kernel tests may be. Under compute-sanitizer a kernel runs 10 to 100
// times slower, so INGOT_TEST_SIZES=small in the environment leaves the larger shapes out.
#pragma once

#include <cstdint>

namespace ingot::test {

bool has_small_sizes();

// Whether a shape is left out: it takes more than `limit` units of work (elements, or products of
// pairs; the test says what it counts) and small sizes are asked for.
bool is_left_out(std::int64_t work, std::int64_t limit = 1 << 16);

}  // namespace ingot::test
