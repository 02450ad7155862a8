// The three matrix products of a linear layer y = x W^T + b, with their epilogues.
//
//   fprop  out = inp @ weight^T + bias; with GELU: pre_gelu = inp @ weight^T + bias, out = gelu(..)
//   dgrad  dinp = dout @ weight; with dGELU: dinp = (dout @ weight) * gelu'(pre_gelu)
//   wgrad  dweight (+)= dout^T @ inp
//
// Rows N = B * T; C input and OC output channels; weight is (OC, C) row-major. Operands and outputs
// have one dtype, f32 or bf16; dweight is f32 or bf16 on its own. Sums are fp32 (no TF32 in f32).
// GELU is the tanh form of kernels/gelu.h; the epilogue sees the fp32 sum, not its rounded copy.
// The bf16 epilogues of CUDA are cuBLASLt's: the tanh may be the hardware's, relative error 2^-11,
// and dGELU may multiply the slope by the sum rounded to bf16 (one value on an H200 is explained by
// that alone).
// CPU: OpenBLAS sgemm, or a tiled loop in a build without it; bf16 operands are widened in blocks
// of a few MiB, which the context keeps. CUDA: cuBLASLt. Leading dimensions of inp and out are
// copied to rows() x dim(-1). Errors: matmul.shape, matmul.dtype, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct MatmulForward {
    Tensor out;          // (..., OC), N rows
    Tensor pre_gelu;     // like out; or a null view: no GELU
    ConstTensor inp;     // (..., C), N rows
    ConstTensor weight;  // (OC, C)
    ConstTensor bias;    // (OC); or a null view
};
void matmul_forward(Stream stream, const MatmulForward& args);

struct MatmulDgrad {
    Tensor dinp;           // (..., C), N rows, overwritten
    ConstTensor dout;      // (..., OC), N rows
    ConstTensor weight;    // (OC, C)
    ConstTensor pre_gelu;  // like dinp; or a null view: no dGELU
};
void matmul_dgrad(Stream stream, const MatmulDgrad& args);

struct MatmulWgrad {
    Tensor dweight;    // (OC, C) f32 or bf16
    ConstTensor dout;  // (..., OC), N rows
    ConstTensor inp;   // (..., C), N rows
    bool accumulate;   // += instead of =
};
void matmul_wgrad(Stream stream, const MatmulWgrad& args);

namespace cpu {
struct MatmulBlocks;  // scratch of bf16, one a context
void matmul_forward(const MatmulForward& args, MatmulBlocks* blocks);
void matmul_dgrad(const MatmulDgrad& args, MatmulBlocks* blocks);
void matmul_wgrad(const MatmulWgrad& args, MatmulBlocks* blocks);
}  // namespace cpu

namespace cuda {
// Device memory that a context holds from its first matmul on, for each stream with matmuls: what
// cuBLASLt may use, and a checksum for choosing algorithms.
inline constexpr std::int64_t kMatmulLibraryBytes = 64LL << 20;
inline constexpr std::int64_t kMatmulWorkspaceBytes = kMatmulLibraryBytes + 256;

void matmul_forward(Stream stream, const MatmulForward& args);
void matmul_dgrad(Stream stream, const MatmulDgrad& args);
void matmul_wgrad(Stream stream, const MatmulWgrad& args);
}  // namespace cuda

}  // namespace ingot
