// LayerNorm over the last dimension (Ba, Kiros, Hinton, "Layer normalization", arXiv 1607.06450).
//
//   forward   mean = 1/C sum_i x_i      rstd = 1 / sqrt(1/C sum_i (x_i - mean)^2 + eps)
//             out_i = (x_i - mean) * rstd * weight_i + bias_i
//   backward  xhat_i = (x_i - mean) * rstd      g_i = dout_i * weight_i
//             dinp_i = dresidual_i + rstd * (g_i - 1/C sum_j g_j - xhat_i * 1/C sum_j g_j xhat_j)
//             dweight_i (+)= sum over rows of dout_i * xhat_i      dbias_i (+)= sum of dout_i
//
// A row is one position, N = B * T rows of C channels. Statistics and sums are fp32 or wider on
// both backends. Deterministic: the sums over rows run in an order that depends on the shapes
// alone.
//
// Activations and parameters have one dtype, f32 or bf16; parameter gradients are f32 or bf16.
// Errors: layernorm.shape, layernorm.dtype, layernorm.eps, layernorm.scratch, op.device.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct LayerNormForward {
    Tensor out;          // (N, C)
    Tensor mean;         // (N) f32, saved for backward
    Tensor rstd;         // (N) f32, saved for backward
    ConstTensor inp;     // (N, C)
    ConstTensor weight;  // (C)
    ConstTensor bias;    // (C)
    float eps;           // > 0; GPT-2 uses 1e-5
};
void layernorm_forward(Stream stream, const LayerNormForward& args);

// residual = inp1 + inp2 (rounded to its dtype), then LayerNorm of the rounded sum. `residual` may
// be the same memory as inp1 or inp2.
struct ResidualLayerNormForward {
    Tensor residual;     // (N, C)
    Tensor out;          // (N, C)
    Tensor mean;         // (N) f32
    Tensor rstd;         // (N) f32
    ConstTensor inp1;    // (N, C)
    ConstTensor inp2;    // (N, C)
    ConstTensor weight;  // (C)
    ConstTensor bias;    // (C)
    float eps;           // > 0
};
void residual_layernorm_forward(Stream stream, const ResidualLayerNormForward& args);

struct LayerNormBackward {
    Tensor dinp;            // (N, C), overwritten; may be the same memory as dresidual or dout
    Tensor dweight;         // (C) f32 or bf16
    Tensor dbias;           // (C), dtype of dweight
    Tensor scratch;         // (layernorm_backward_scratch_bytes) u8
    ConstTensor dout;       // (N, C)
    ConstTensor dresidual;  // (N, C), the gradient that reaches x past the norm; or a null view
    ConstTensor inp;        // (N, C)
    ConstTensor weight;     // (C)
    ConstTensor mean;       // (N) f32
    ConstTensor rstd;       // (N) f32
    bool accumulate;        // dweight, dbias: += instead of =
};
void layernorm_backward(Stream stream, const LayerNormBackward& args);
std::int64_t layernorm_backward_scratch_bytes(Device device, std::int64_t N, std::int64_t C);

namespace cpu {
void layernorm_forward(const LayerNormForward& args);
void residual_layernorm_forward(const ResidualLayerNormForward& args);
void layernorm_backward(const LayerNormBackward& args);
}  // namespace cpu

namespace cuda {
void layernorm_forward(Stream stream, const LayerNormForward& args);
void residual_layernorm_forward(Stream stream, const ResidualLayerNormForward& args);
void layernorm_backward(Stream stream, const LayerNormBackward& args);
}  // namespace cuda

}  // namespace ingot
