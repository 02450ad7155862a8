// Global gradient norm and clipping (Pascanu et al., "On the difficulty of training recurrent
// neural networks", arXiv 1211.5063).
//
//   squared_norm          out[0] (+)= sum of inp_i^2, fp32 or wider, fixed order
//   clip_by_global_norm   norm = sqrt(sum of squares) * inv_tokens
//                         factor = inv_tokens * (max_norm > 0 and norm > max_norm ?
//                                                max_norm / norm : 1)
//                         is_finite = norm and loss are finite
//
// Errors: global_norm.shape, global_norm.dtype, global_norm.scratch, op.device, op.missing.
#pragma once

#include "engine/core/device.h"
#include "kernels/step_scalars.h"

namespace ingot {

struct SquaredNorm {
    Tensor out;       // (1) f32
    Tensor scratch;   // (squared_norm_scratch_bytes) u8
    ConstTensor inp;  // any shape, f32 or bf16; may have more than 2^31 elements
    bool accumulate;  // += instead of =
};
void squared_norm(Stream stream, const SquaredNorm& args);
std::int64_t squared_norm_scratch_bytes(Device device, std::int64_t numel);

struct ClipByGlobalNorm {
    Tensor scalars;       // (kNumStepScalars) f32: reads kInvTokens, kMaxNorm; writes the rest
    ConstTensor squares;  // (n) f32, sums of squares of n parts of the gradient
    ConstTensor loss;     // (1) f32, must be finite too; or a null view
};
void clip_by_global_norm(Stream stream, const ClipByGlobalNorm& args);

namespace cpu {
void squared_norm(const SquaredNorm& args);
void clip_by_global_norm(const ClipByGlobalNorm& args);
}  // namespace cpu

namespace cuda {
void squared_norm(Stream stream, const SquaredNorm& args);
void clip_by_global_norm(Stream stream, const ClipByGlobalNorm& args);
}  // namespace cuda

}  // namespace ingot
