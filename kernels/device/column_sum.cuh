// Second stage of a sum over rows: partial sums of row blocks, held in scratch, become a parameter
// gradient. The order of the sum depends on the number of partials alone.
#pragma once

#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"

namespace ingot::cuda {

inline constexpr int kColumnSumLanes = 32;  // threads that share one column
inline constexpr int kColumnSumUnroll = 4;  // partials that a thread has in flight

// out[c] (+)= sum over p of partials[p * stride + c]. grid.x * 32 columns; blockIdx.y chooses the
// output: out0 reads columns 0..C-1 of a row of partials, out1 columns C..2C-1.
template <class G>
__global__ void __launch_bounds__(1024) column_sum_kernel(
    G* out0, G* out1, const float* partials, int num_partials, int C, bool accumulate) {
    __shared__ float sums[kColumnSumLanes][33];
    const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
    const std::int64_t stride = static_cast<std::int64_t>(C) * gridDim.y;
    G* out = blockIdx.y == 0 ? out0 : out1;
    float sum = 0.0F;
    float old = 0.0F;
    wait_for_predecessor();
    if (column < C) {
        if (accumulate && threadIdx.y == 0)
            old = widen(out[column]);  // under way with the partials
        const float* source = partials + static_cast<std::int64_t>(blockIdx.y) * C + column;
        for (int first = static_cast<int>(threadIdx.y); first < num_partials;
             first += kColumnSumLanes * kColumnSumUnroll) {
            float values[kColumnSumUnroll];
#pragma unroll
            for (int u = 0; u < kColumnSumUnroll; ++u) {
                const int p = first + u * kColumnSumLanes;
                values[u] = p < num_partials ? source[p * stride] : 0.0F;
            }
#pragma unroll
            for (int u = 0; u < kColumnSumUnroll; ++u)
                sum += values[u];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= C) return;
    float total = 0.0F;
#pragma unroll
    for (int lane = 0; lane < kColumnSumLanes; ++lane)
        total += sums[lane][threadIdx.x];
    out[column] = narrow<G>(accumulate ? old + total : total);
}

// partials is (num_partials, C) for one output, (num_partials, 2, C) for two; out1 may be null. An
// error names `op` and the output's `shape`.
template <class G>
void sum_columns(Stream stream,
                 const char* op,
                 const TensorShape& shape,
                 G* out0,
                 G* out1,
                 const float* partials,
                 int num_partials,
                 int C,
                 bool accumulate) {
    const dim3 grid(static_cast<unsigned>(ceil_div(C, 32)), out1 == nullptr ? 1 : 2);
    launch_dependent(stream, op, shape, grid, dim3(32, kColumnSumLanes), 0, column_sum_kernel<G>,
                     out0, out1, partials, num_partials, C, accumulate);
}

}  // namespace ingot::cuda
