// AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", arXiv 1711.05101) on fp32
// master weights. With g = grad * scalars[kGradFactor]:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   master = master - lr * ( (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
//                            + weight_decay * master )
//   param = master rounded to its dtype
//
// Elementwise on flat ranges: numel may exceed 2^31. Does nothing at all when scalars[kIsFinite] is
// 0. lr and the bias corrections are read from `scalars` on the device.
// Errors: adamw.shape, adamw.dtype, adamw.value, op.device, op.missing.
#pragma once

#include "engine/core/device.h"
#include "kernels/step_scalars.h"

namespace ingot {

struct AdamW {
    Tensor master;        // (n) f32
    Tensor m;             // (n) f32, first moment
    Tensor v;             // (n) f32, second moment
    Tensor param;         // (n) f32 or bf16; a null view when the master is the parameter
    ConstTensor grad;     // (n) f32 or bf16, the unnormalized sum
    ConstTensor scalars;  // (kNumStepScalars) f32
    float beta1, beta2;   // in [0, 1)
    float eps;            // > 0
    float weight_decay;   // >= 0; 0 for norms and biases
};
void adamw(Stream stream, const AdamW& args);

namespace cpu {
void adamw(const AdamW& args);
}  // namespace cpu

namespace cuda {
void adamw(Stream stream, const AdamW& args);
}  // namespace cuda

}  // namespace ingot
