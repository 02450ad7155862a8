// The tiled matmul of the CUDA backend for what cuBLASLt has no algorithm for: odd bf16 shapes and
// epilogues, fp32 operands with a bf16 gradient. Right for every shape, on CUDA cores, slow.
#pragma once

#include "engine/core/device.h"
#include "kernels/matmul_plan_table.h"

namespace ingot::cuda {

// out[i, j] = epilogue(sum over k of a(i, k) b(k, j)), i < M, j < N, k < K; fp32 sums, k ascending.
// a(i, k) = a[i * a_row + k * a_column], b likewise. gelu writes the sum to `aux` and its GELU to
// out, dgelu multiplies the sum by gelu'(aux).
struct GeneralMatmul {
    Tensor out;        // (M, N), f32 or bf16
    Tensor aux;        // (M, N), dtype of out; null without gelu and dgelu
    ConstTensor a, b;  // f32 or bf16, one dtype
    ConstTensor bias;  // (N), dtype of out; null without bias
    std::int64_t M, N, K;
    std::int64_t a_row, a_column, b_row, b_column;
    MatmulEpilogue epilogue;
    bool accumulate;  // out += instead of =
};
void matmul_general(Stream stream, const GeneralMatmul& args);

}  // namespace ingot::cuda
