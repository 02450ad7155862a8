// Two stages: a number of blocks that depends on the size alone sums squares in fp32, one block
// adds their partial sums in fp64. Bytes: the gradient once.
#include "kernels/device/global_norm_grid.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/global_norm.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;  // packs that a thread has in flight

template <class T, int W>
__global__ void __launch_bounds__(kThreads, 4) squared_norm_kernel(float* __restrict__ partials,
                                                                   const T* __restrict__ inp,
                                                                   std::int64_t numel) {
    using P = Pack<T, W>;
    __shared__ float shared[kThreads / 32];
    const std::int64_t packs = numel / W;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    float sum = 0.0F;
    std::int64_t p = thread;
    for (; p + (kUnroll - 1) * step < packs; p += kUnroll * step) {
        P x[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            x[u] = P::load(inp + (p + u * step) * W);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int i = 0; i < W; ++i)
                sum += x[u].get(i) * x[u].get(i);
        }
    }
    for (; p < packs; p += step) {
        const P x = P::load(inp + p * W);
#pragma unroll
        for (int i = 0; i < W; ++i)
            sum += x.get(i) * x.get(i);
    }
    for (std::int64_t i = packs * W + thread; i < numel; i += step)
        sum += widen(inp[i]) * widen(inp[i]);
    sum = block_sum<kThreads / 32>(sum, shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) add_partials_kernel(float* out,
                                                                const float* __restrict__ partials,
                                                                int count,
                                                                bool accumulate) {
    __shared__ double shared[kThreads / 32];
    double sum = 0.0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
        sum += static_cast<double>(partials[i]);
    const double total = block_sum<kThreads / 32>(sum, shared);
    if (threadIdx.x == 0) out[0] = static_cast<float>(accumulate ? out[0] + total : total);
}

__global__ void __launch_bounds__(kThreads)
    clip_by_global_norm_kernel(float* scalars,
                               const float* __restrict__ squares,
                               std::int64_t n,
                               const float* __restrict__ loss) {
    __shared__ double shared[kThreads / 32];
    double sum = 0.0;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
        sum += static_cast<double>(squares[i]);
    const double total = block_sum<kThreads / 32>(sum, shared);
    if (threadIdx.x != 0) return;
    const float inv_tokens = scalars[kInvTokens];
    const float max_norm = scalars[kMaxNorm];
    const float norm = static_cast<float>(sqrt(total) * static_cast<double>(inv_tokens));
    const bool is_clipped = max_norm > 0.0F && norm > max_norm;
    scalars[kGradNorm] = norm;
    const bool is_loss_finite = loss == nullptr || isfinite(*loss);
    const bool is_finite = isfinite(norm) && is_loss_finite;
    const float factor = is_clipped ? inv_tokens * (max_norm / norm) : inv_tokens;
    scalars[kGradFactor] = is_finite ? factor : 0.0F;
    scalars[kIsFinite] = is_finite ? 1.0F : 0.0F;
}

}  // namespace

void squared_norm(Stream stream, const SquaredNorm& args) {
    const std::int64_t numel = args.inp.numel();
    const int blocks = squared_norm_blocks(numel);
    float* partials = static_cast<float*>(args.scratch.data);
    dispatch_float(args.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (are_aligned(args.inp)) {
            squared_norm_kernel<T, kPackWidth<T>>
                <<<blocks, kThreads, 0, native(stream)>>>(partials, args.inp.ptr<T>(), numel);
        } else {
            squared_norm_kernel<T, 1>
                <<<blocks, kThreads, 0, native(stream)>>>(partials, args.inp.ptr<T>(), numel);
        }
    });
    check_launch("squared_norm", args.inp);
    add_partials_kernel<<<1, kThreads, 0, native(stream)>>>(args.out.ptr<float>(), partials, blocks,
                                                            args.accumulate);
    check_launch("squared_norm", args.out);
}

void clip_by_global_norm(Stream stream, const ClipByGlobalNorm& args) {
    clip_by_global_norm_kernel<<<1, kThreads, 0, native(stream)>>>(
        args.scalars.ptr<float>(), args.squares.ptr<float>(), args.squares.numel(),
        args.loss ? args.loss.ptr<float>() : nullptr);
    check_launch("clip_by_global_norm", args.squares);
}

}  // namespace ingot::cuda
