// Two stages: a block sums a chunk of rows for 32 packs of columns into scratch, then column_sum
// adds the chunks. Chunks depend on the shape alone. Bytes: dout once.
#include "kernels/bias_gradient.h"
#include "kernels/device/bias_gradient_grid.h"
#include "kernels/device/column_sum.cuh"
#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"

namespace ingot::cuda {
namespace {

constexpr int kRowLanes = kBiasGradientRowLanes;
constexpr int kUnroll = kBiasGradientUnroll;

template <class T, int W>
__global__ void __launch_bounds__(kRowLanes * 32, 2) bias_gradient_kernel(
    float* partials, const T* dout, std::int64_t N, int OC, std::int64_t chunk_rows) {
    using P = Pack<T, W>;
    __shared__ float sums[kRowLanes][32 * W];
    const int column = (static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x)) * W;
    const std::int64_t begin = blockIdx.y * chunk_rows;
    const std::int64_t end = min(begin + chunk_rows, N);
    float sum[W] = {};
    let_dependent_start();
    wait_for_predecessor();
    if (column < OC) {
        const T* source = dout + column;
        for (std::int64_t row = begin + threadIdx.y; row < end; row += kUnroll * kRowLanes) {
            P packs[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const std::int64_t at = row + u * kRowLanes;
                packs[u] = at < end ? P::load(source + at * OC) : P::zero();
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
                for (int i = 0; i < W; ++i)
                    sum[i] += packs[u].get(i);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < W; ++i)
        sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
    __syncthreads();
    // Thread t adds the row lanes of entry t, t + 512, ...: entry e is value e / 32 of lane e % 32.
    for (int entry = static_cast<int>(threadIdx.y) * 32 + static_cast<int>(threadIdx.x);
         entry < 32 * W; entry += kRowLanes * 32) {
        const int target = (static_cast<int>(blockIdx.x) * 32 + entry % 32) * W + entry / 32;
        if (target >= OC) continue;
        float total = 0.0F;
#pragma unroll
        for (int lane = 0; lane < kRowLanes; ++lane)
            total += sums[lane][entry];
        partials[static_cast<std::int64_t>(blockIdx.y) * OC + target] = total;
    }
}

template <class T, int W>
void launch(Stream stream, const BiasGradient& args, int chunks) {
    const std::int64_t N = args.dout.rows();
    const int OC = static_cast<int>(args.dout.dim(-1));
    const dim3 grid(static_cast<unsigned>(ceil_div(OC, 32 * W)), static_cast<unsigned>(chunks));
    launch_dependent(stream, "bias_gradient", args.dout, grid, dim3(32, kRowLanes), 0,
                     bias_gradient_kernel<T, W>, static_cast<float*>(args.scratch.data),
                     args.dout.ptr<T>(), N, OC, ceil_div<std::int64_t>(N, chunks));
}

}  // namespace

void bias_gradient(Stream stream, const BiasGradient& args) {
    const int OC = static_cast<int>(args.dout.dim(-1));
    const int chunks = bias_gradient_chunks(args.dout.rows(), OC);
    dispatch_float(args.dout.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (OC % kPackWidth<T> == 0 && are_aligned(args.dout)) {
            launch<T, kPackWidth<T>>(stream, args, chunks);
        } else {
            launch<T, 1>(stream, args, chunks);
        }
    });
    dispatch_float(args.dbias.dtype, [&](auto zero) {
        using G = decltype(zero);
        sum_columns<G>(stream, "bias_gradient", args.dbias, args.dbias.ptr<G>(), nullptr,
                       static_cast<const float*>(args.scratch.data), chunks, OC, args.accumulate);
    });
}

}  // namespace ingot::cuda
