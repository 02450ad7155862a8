// out[0] (+)= sum of inp, fp32 or wider, in an order that depends on the size alone; for losses.
// Errors: sum.shape, sum.dtype, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct Sum {
    Tensor out;       // (1) f32
    ConstTensor inp;  // any shape, f32
    bool accumulate;  // += instead of =
};
void sum(Stream stream, const Sum& args);

namespace cpu {
void sum(const Sum& args);
}  // namespace cpu

namespace cuda {
void sum(Stream stream, const Sum& args);
}  // namespace cuda

}  // namespace ingot
