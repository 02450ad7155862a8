// Gradient of a bias: dbias[c] (+)= sum over rows n of dout[n, c], in fp32 or wider, in an order
// that depends on the shape alone.
// Errors: bias_gradient.shape, bias_gradient.dtype, bias_gradient.scratch, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct BiasGradient {
    Tensor dbias;      // (OC) f32 or bf16
    Tensor scratch;    // (bias_gradient_scratch_bytes) u8
    ConstTensor dout;  // (..., OC), N rows, f32 or bf16
    bool accumulate;   // += instead of =
};
void bias_gradient(Stream stream, const BiasGradient& args);
std::int64_t bias_gradient_scratch_bytes(Device device, std::int64_t N, std::int64_t OC);

namespace cpu {
void bias_gradient(const BiasGradient& args);
}  // namespace cpu

namespace cuda {
void bias_gradient(Stream stream, const BiasGradient& args);
}  // namespace cuda

}  // namespace ingot
