#include "kernels/device/gelu.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/matmul_general.h"

namespace ingot::cuda {
namespace {

constexpr int kTile = 32;       // rows and columns of a block, and terms of a step
constexpr int kThreadRows = 8;  // of the block; a thread owns kTile / kThreadRows elements

template <class T, class G>
struct Arrays {
    G* out;
    G* aux;
    const T* a;
    const T* b;
    const G* bias;
    std::int64_t M, N, K;
    std::int64_t a_row, a_column, b_row, b_column;
    MatmulEpilogue epilogue;
    bool accumulate;
};

template <class T, class G>
__device__ __forceinline__ void finish(const Arrays<T, G>& p,
                                       std::int64_t i,
                                       std::int64_t j,
                                       float sum) {
    const std::int64_t at = i * p.N + j;
    if (p.bias != nullptr) sum += widen(p.bias[j]);
    if (p.accumulate) sum += widen(p.out[at]);
    if (p.epilogue == MatmulEpilogue::gelu || p.epilogue == MatmulEpilogue::gelu_bias) {
        p.aux[at] = narrow<G>(sum);
        sum = gelu_value<G>(sum);
    } else if (p.epilogue == MatmulEpilogue::dgelu) {
        sum *= gelu_slope<G>(widen(p.aux[at]));
    }
    p.out[at] = narrow<G>(sum);
}

// blockIdx.x counts row tiles, blockIdx.y column tiles (striding when there are more than 65,535).
template <class T, class G>
__global__ void __launch_bounds__(kTile* kThreadRows) matmul_general_kernel(const Arrays<T, G> p) {
    __shared__ float a_tile[kTile][kTile + 1];
    __shared__ float b_tile[kTile][kTile + 1];
    const int tx = static_cast<int>(threadIdx.x);
    const int ty = static_cast<int>(threadIdx.y);
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kTile;
    for (std::int64_t first_column = static_cast<std::int64_t>(blockIdx.y) * kTile;
         first_column < p.N; first_column += static_cast<std::int64_t>(gridDim.y) * kTile) {
        float sums[kTile / kThreadRows] = {};
        for (std::int64_t first_k = 0; first_k < p.K; first_k += kTile) {
            for (int y = ty; y < kTile; y += kThreadRows) {
                const std::int64_t i = first_row + y;
                const std::int64_t j = first_column + tx;
                const bool has_a = i < p.M && first_k + tx < p.K;
                const bool has_b = first_k + y < p.K && j < p.N;
                a_tile[y][tx] =
                    has_a ? widen(p.a[i * p.a_row + (first_k + tx) * p.a_column]) : 0.0F;
                b_tile[y][tx] = has_b ? widen(p.b[(first_k + y) * p.b_row + j * p.b_column]) : 0.0F;
            }
            __syncthreads();
#pragma unroll 8
            for (int k = 0; k < kTile; ++k) {
#pragma unroll
                for (int r = 0; r < kTile / kThreadRows; ++r)
                    sums[r] += a_tile[ty + r * kThreadRows][k] * b_tile[k][tx];
            }
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < kTile / kThreadRows; ++r) {
            const std::int64_t i = first_row + ty + r * kThreadRows;
            const std::int64_t j = first_column + tx;
            if (i < p.M && j < p.N) finish(p, i, j, sums[r]);
        }
    }
}

}  // namespace

void matmul_general(Stream stream, const GeneralMatmul& args) {
    if (args.M == 0 || args.N == 0) return;
    const std::int64_t column_tiles = ceil_div<std::int64_t>(args.N, kTile);
    const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(args.M, kTile)),
                    static_cast<unsigned>(column_tiles < 65535 ? column_tiles : 65535));
    dispatch_float(args.a.dtype, [&](auto operand) {
        using T = decltype(operand);
        dispatch_float(args.out.dtype, [&](auto result) {
            using G = decltype(result);
            const Arrays<T, G> p = {args.out.ptr<G>(),
                                    args.aux ? args.aux.ptr<G>() : nullptr,
                                    args.a.ptr<T>(),
                                    args.b.ptr<T>(),
                                    args.bias ? args.bias.ptr<G>() : nullptr,
                                    args.M,
                                    args.N,
                                    args.K,
                                    args.a_row,
                                    args.a_column,
                                    args.b_row,
                                    args.b_column,
                                    args.epilogue,
                                    args.accumulate};
            matmul_general_kernel<T, G><<<grid, dim3(kTile, kThreadRows), 0, native(stream)>>>(p);
        });
    });
    check_launch("matmul (general kernel)", args.out);
}

}  // namespace ingot::cuda
