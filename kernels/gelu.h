// GELU in its tanh form, GPT-2's "gelu_new" (Hendrycks, Gimpel, arXiv 1606.08415).
//
//   u(x) = sqrt(2/pi) * (x + 0.044715 x^3)
//   forward   out = 0.5 x (1 + tanh u)
//   backward  dinp = dout * (0.5 (1 + tanh u) + 0.5 x (1 - tanh^2 u) u'(x)),
//             u'(x) = sqrt(2/pi) * (1 + 3 * 0.044715 x^2)
//
// Any shape; one dtype, f32 or bf16. In place is allowed.
// Errors: gelu.shape, gelu.dtype, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct GeluForward {
    Tensor out;
    ConstTensor inp;
};
void gelu_forward(Stream stream, const GeluForward& args);

struct GeluBackward {
    Tensor dinp;
    ConstTensor dout;
    ConstTensor inp;  // what forward saw
};
void gelu_backward(Stream stream, const GeluBackward& args);

namespace cpu {
void gelu_forward(const GeluForward& args);
void gelu_backward(const GeluBackward& args);
}  // namespace cpu

namespace cuda {
void gelu_forward(Stream stream, const GeluForward& args);
void gelu_backward(Stream stream, const GeluBackward& args);
}  // namespace cuda

}  // namespace ingot
