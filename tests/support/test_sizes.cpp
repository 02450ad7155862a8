#include "tests/support/test_sizes.h"

#include <cstdlib>
#include <string>

#include "engine/core/check.h"

namespace ingot::test {

bool has_small_sizes() {
    const char* sizes = std::getenv("INGOT_TEST_SIZES");
    if (sizes == nullptr) return false;
    const std::string name = sizes;
    ENSURE(name == "small" || name == "all", "test.sizes", "INGOT_TEST_SIZES = ", name,
           ", must be small or all");
    return name == "small";
}

bool is_left_out(std::int64_t work, std::int64_t limit) {
    return work > limit && has_small_sizes();
}

}  // namespace ingot::test
