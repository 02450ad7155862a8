// Rows that fit shared memory are read once: persistent blocks copy the next row while they write
// this one's gradient, two of a multiprocessor where two rows fit, so that one computes while the
// other waits for memory. Other rows (wide, narrow or unaligned) are read twice by a block each,
// the second time mostly from L2. Floor: the row read once, and written once when dlogits are
// wanted.
#include <algorithm>

#include <cuda_pipeline.h>

#include "kernels/cross_entropy.h"
#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/device/shared_memory.cuh"

namespace ingot::cuda {
namespace {

constexpr const char* kOp = "cross_entropy";
constexpr int kThreads = 1024;
constexpr float kLog2e = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

template <class T>
struct Arrays {
    float* losses;
    T* logits;
    const int* targets;
    std::int64_t N;
    int V;
    int Vp;
    bool write_dlogits;
};

// The exponent's offset of a maximum: terms are 2^(x log2(e) - offset), one fma and one
// instruction.
__device__ __forceinline__ float offset_of(float max) {
    return __fmul_rn(max, kLog2e);
}

// Of the values seen so far: their maximum, and the sum of 2^(x log2(e) - offset_of(max)).
struct Softmax {
    float max;
    float sum;
};

__device__ __forceinline__ Softmax merge(Softmax a, Softmax b) {
    const float top = fmaxf(a.max, b.max);
    if (top == -INFINITY) return {top, __fadd_rn(a.sum, b.sum)};  // 0, or NaN from a NaN logit
    const float offset = offset_of(top);
    // No contraction into fma: both orders of the arguments must give the same bits.
    return {top, __fadd_rn(__fmul_rn(a.sum, ptx::exp2_approx(offset_of(a.max) - offset)),
                           __fmul_rn(b.sum, ptx::exp2_approx(offset_of(b.max) - offset)))};
}

// Over the block, in an order fixed by the thread numbers.
template <int Warps>
__device__ __forceinline__ Softmax block_softmax(Softmax value, Softmax* shared) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Softmax other = {__shfl_xor_sync(kFullWarp, value.max, offset),
                               __shfl_xor_sync(kFullWarp, value.sum, offset)};
        value = merge(value, other);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < Warps ? shared[threadIdx.x % 32] : Softmax{-INFINITY, 0.0F};
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Softmax other = {__shfl_xor_sync(kFullWarp, value.max, offset),
                               __shfl_xor_sync(kFullWarp, value.sum, offset)};
        value = merge(value, other);
    }
    return value;
}

template <class T>
__device__ __forceinline__ void write_loss(
    const Arrays<T>& a, std::int64_t row, int target, float target_logit, Softmax s) {
    if (target == kMaskedTarget) {
        a.losses[row] = 0.0F;
        return;
    }
    // The offset was rounded; the difference matters where logits are large.
    const float rounding = fmaf(s.max, kLog2e, -offset_of(s.max));
    a.losses[row] = (log2f(s.sum) - rounding) * kLn2 + (s.max - target_logit);
}

// The pack's columns from `visible` on are padding and become -inf: they add nothing to the sum and
// their gradient is 0.
template <class T, int W>
__device__ __forceinline__ void hide_padding(Pack<T, W>* x, int visible) {
    if (visible >= W) return;
    float values[W];
#pragma unroll
    for (int i = 0; i < W; ++i)
        values[i] = i < visible ? x->get(i) : -INFINITY;
    *x = Pack<T, W>::from(values);
}

// dlogits of a pack whose padding is hidden. `target` counts from the pack's first column.
template <class T, int W>
__device__ __forceinline__ Pack<T, W> gradient(const Pack<T, W>& x,
                                               int target,
                                               float offset,
                                               float inv_sum) {
    float d[W];
#pragma unroll
    for (int i = 0; i < W; ++i)
        d[i] = ptx::exp2_approx(fmaf(x.get(i), kLog2e, -offset)) * inv_sum;
    if (target >= 0 && target < W) {
#pragma unroll
        for (int i = 0; i < W; ++i)
            if (i == target) d[i] -= 1.0F;
    }
    return Pack<T, W>::from(d);
}

// Starts the copy of a pack of a row into its place; a thread touches only its own.
template <class T>
__device__ __forceinline__ void fetch_pack(uint4* slots, const T* row, int p) {
    __pipeline_memcpy_async(&slots[p], row + static_cast<std::int64_t>(p) * kPackWidth<T>, 16);
}

template <class T>
__device__ __forceinline__ Pack<T, kPackWidth<T>> pack_at(const Arrays<T>& a,
                                                          const uint4* slots,
                                                          int p) {
    auto x = Pack<T, kPackWidth<T>>::load(reinterpret_cast<const T*>(&slots[p]));
    hide_padding(&x, a.V - p * kPackWidth<T>);
    return x;
}

// Persistent blocks; a row's bits do not depend on which one it meets. A pack of the next row is
// under way from the moment on that the gradient in its place is written.
template <class T, int Threads>
__global__ void __launch_bounds__(Threads, kThreads / Threads)
    cross_entropy_cached_kernel(const Arrays<T> a) {
    constexpr int W = kPackWidth<T>;
    using P = Pack<T, W>;
    extern __shared__ uint4 slots[];
    __shared__ Softmax shared[2][Threads / 32];
    const int packs = a.Vp / W;
    const int first = static_cast<int>(threadIdx.x);
    int parity = 0;
    let_dependent_start();
    wait_for_predecessor();
    const T* row_0 = a.logits + static_cast<std::int64_t>(blockIdx.x) * a.Vp;
    for (int p = first; p < packs; p += Threads)
        fetch_pack(slots, row_0, p);
    for (std::int64_t row = blockIdx.x; row < a.N; row += gridDim.x) {
        T* logits = a.logits + row * a.Vp;
        const bool has_next = row + gridDim.x < a.N;
        const T* next = logits + static_cast<std::int64_t>(gridDim.x) * a.Vp;
        __pipeline_commit();
        __pipeline_wait_prior(0);
        const int target = a.targets[row];
        const float target_logit = target == kMaskedTarget ? 0.0F : widen(logits[target]);
        float top = -INFINITY;
#pragma unroll 4
        for (int p = first; p < packs; p += Threads) {
            const P x = pack_at(a, slots, p);
#pragma unroll
            for (int i = 0; i < W; ++i)
                top = fmaxf(top, x.get(i));
        }
        Softmax s = {top, 0.0F};
        const float own_offset = top == -INFINITY ? 0.0F : offset_of(top);  // -inf + inf is NaN
#pragma unroll 2
        for (int p = first; p < packs; p += Threads) {
            const P x = pack_at(a, slots, p);
#pragma unroll
            for (int i = 0; i < W; ++i)
                s.sum += ptx::exp2_approx(fmaf(x.get(i), kLog2e, -own_offset));
        }
        s = block_softmax<Threads / 32>(s, shared[parity]);
        if (threadIdx.x == 0) write_loss(a, row, target, target_logit, s);
        const float offset = offset_of(s.max);
        const float inv_sum = 1.0F / s.sum;
#pragma unroll 2
        for (int p = first; p < packs; p += Threads) {
            if (a.write_dlogits) {
                const P d = target == kMaskedTarget
                                ? P::zero()
                                : gradient(pack_at(a, slots, p), target - p * W, offset, inv_sum);
                d.template store<Use::streaming>(logits + static_cast<std::int64_t>(p) * W);
            }
            if (has_next) fetch_pack(slots, next, p);
        }
        parity ^= 1;
    }
}

// Any Vp and alignment: one block a row. The second pass runs backwards, from what is still cached.
template <class T, int W>
__global__ void __launch_bounds__(kThreads) cross_entropy_any_kernel(const Arrays<T> a) {
    using P = Pack<T, W>;
    __shared__ Softmax shared[kThreads / 32];
    const std::int64_t row = blockIdx.x;
    T* logits = a.logits + row * a.Vp;
    const int target = a.targets[row];
    const float target_logit = target == kMaskedTarget ? 0.0F : widen(logits[target]);
    const int packs = a.Vp / W;
    Softmax s = {-INFINITY, 0.0F};
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += kThreads) {
        P x = P::load(logits + static_cast<std::int64_t>(p) * W);
        hide_padding(&x, a.V - p * W);
        float top = s.max;
#pragma unroll
        for (int i = 0; i < W; ++i)
            top = fmaxf(top, x.get(i));
        if (top == -INFINITY) {  // nothing above -inf so far; but NaN must not be lost
#pragma unroll
            for (int i = 0; i < W; ++i)
                s.sum += isnan(x.get(i)) ? NAN : 0.0F;
            continue;
        }
        const float offset = offset_of(top);
        s.sum *= ptx::exp2_approx(offset_of(s.max) - offset);
        s.max = top;
#pragma unroll
        for (int i = 0; i < W; ++i)
            s.sum += ptx::exp2_approx(fmaf(x.get(i), kLog2e, -offset));
    }
    s = block_softmax<kThreads / 32>(s, shared);
    if (threadIdx.x == 0) write_loss(a, row, target, target_logit, s);
    if (!a.write_dlogits) return;
    const float offset = offset_of(s.max);
    const float inv_sum = 1.0F / s.sum;
    const int rounds = (packs + kThreads - 1) / kThreads;
    for (int round = rounds - 1; round >= 0; --round) {
        const int p = round * kThreads + static_cast<int>(threadIdx.x);
        if (p >= packs) continue;
        T* place = logits + static_cast<std::int64_t>(p) * W;
        P x = P::load(place);
        hide_padding(&x, a.V - p * W);
        const auto d =
            target == kMaskedTarget ? P::zero() : gradient(x, target - p * W, offset, inv_sum);
        d.store(place);
    }
}

// 1024 threads of a multiprocessor: in one block, or in two.
template <class T, int Threads>
void launch_cached(Stream stream, const Arrays<T>& a, const TensorShape& shape, int row_bytes) {
    const auto kernel = cross_entropy_cached_kernel<T, Threads>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, row_bytes),
               kOp, shape);
    const std::int64_t most = static_cast<std::int64_t>(kThreads / Threads) *
                              device_attribute(cudaDevAttrMultiProcessorCount, kOp, shape);
    launch_dependent(stream, kOp, shape, dim3(static_cast<unsigned>(std::min(most, a.N))),
                     dim3(Threads), static_cast<std::size_t>(row_bytes), kernel, a);
}

template <class T>
void launch(Stream stream, const Arrays<T>& a, const TensorShape& shape, bool is_aligned) {
    constexpr int W = kPackWidth<T>;
    constexpr std::int64_t kOtherBytes = 2048;  // of a block: static, and what CUDA keeps
    const unsigned rows = grid_blocks(kOp, shape, a.N);
    if (!is_aligned || a.Vp % W != 0) {
        cross_entropy_any_kernel<T, 1><<<rows, kThreads, 0, native(stream)>>>(a);
        return;
    }
    const std::int64_t row_bytes = static_cast<std::int64_t>(a.Vp) * sizeof(T);
    const std::int64_t shared_bytes = shared_memory_limit_bytes(kOp, shape);
    if (a.Vp / W < kThreads / 2 || row_bytes + kOtherBytes > shared_bytes) {
        cross_entropy_any_kernel<T, W><<<rows, kThreads, 0, native(stream)>>>(a);
    } else if (2 * (row_bytes + kOtherBytes) > shared_bytes) {
        launch_cached<T, kThreads>(stream, a, shape, static_cast<int>(row_bytes));
    } else {
        launch_cached<T, kThreads / 2>(stream, a, shape, static_cast<int>(row_bytes));
    }
}

}  // namespace

void cross_entropy(Stream stream, const CrossEntropy& args) {
    const std::int64_t N = args.logits.rows();
    if (N == 0) return;
    dispatch_float(args.logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        const Arrays<T> a = {args.losses.ptr<float>(),
                             args.logits.ptr<T>(),
                             args.targets.ptr<std::int32_t>(),
                             N,
                             static_cast<int>(args.vocab_size),
                             static_cast<int>(args.logits.dim(-1)),
                             args.write_dlogits};
        launch(stream, a, args.logits, are_aligned(args.logits));
    });
    check_launch(kOp, args.logits);
}

}  // namespace ingot::cuda
