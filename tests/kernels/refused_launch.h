// Calls that CUDA refuses before it runs anything; the context stays whole.
#pragma once

#include "engine/core/device.h"

namespace ingot::test {

// Each is of the op "refused" on a tensor of this shape, and throws.
void launch_with_too_many_threads(Stream stream, const TensorShape& shape);
void launch_dependent_with_too_many_threads(Stream stream, const TensorShape& shape);
void ask_for_too_much_shared_memory(const TensorShape& shape);

// Adds 1 to the one value of `out`.
void launch_allowed(Stream stream, Tensor out);

}  // namespace ingot::test
