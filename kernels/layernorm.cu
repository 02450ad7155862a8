// Rows that fit the registers of a warp (C <= 2048, 16-byte packs) go through one warp each and are
// read once. Backward gives each thread of a block one pack of columns and walks over rows, so that
// the sums over rows stay in registers until the end. Everything else (odd C, unaligned views, wide
// rows) goes through the *_any_kernel path, which reads rows again from the cache.
#include "kernels/device/column_sum.cuh"
#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/layernorm_grid.h"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/layernorm.h"

namespace ingot::cuda {
namespace {

constexpr int kForwardWarps = 8;    // rows of a forward block
constexpr int kMaxLaneFloats = 64;  // of one row in a lane's registers: C <= 2048
constexpr int kBackwardRows = kLayerNormBackwardRows;
static_assert(kPackWidth<bf16> == 8 && kPackWidth<float> == 4, "as layernorm_grid.h counts");
constexpr int kMaxBackwardThreads = 512;
constexpr int kAnyThreads = 256;

// ------------------------------------------------------------------------------------- forward

// inp2 and residual are null in the plain form. A lane holds packs lane, lane + 32, ... of its row.
template <class T>
struct ForwardArrays {
    T* residual;
    T* out;
    float* mean;
    float* rstd;
    const T* inp1;
    const T* inp2;
    const T* weight;
    const T* bias;
    std::int64_t N;
    int C;
    float eps;
};

template <class T, int kPacks, bool kFused>
__global__ void __launch_bounds__(kForwardWarps * 32)
    layernorm_forward_kernel(const ForwardArrays<T> a) {
    constexpr int W = kPackWidth<T>;
    using P = Pack<T, W>;
    let_dependent_start();
    wait_for_predecessor();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * kForwardWarps + threadIdx.x / 32;
    if (row >= a.N) return;
    const std::int64_t begin = row * a.C;
    P x[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        const int column = (p * 32 + lane) * W;
        x[p] = column < a.C ? P::load(a.inp1 + begin + column) : P::zero();
    }
    if constexpr (kFused) {
        P y[kPacks];
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            const int column = (p * 32 + lane) * W;
            y[p] = column < a.C ? P::load(a.inp2 + begin + column) : P::zero();
        }
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            float sum[W];
#pragma unroll
            for (int i = 0; i < W; ++i)
                sum[i] = x[p].get(i) + y[p].get(i);
            x[p] = P::from(sum);
            const int column = (p * 32 + lane) * W;
            if (column < a.C) x[p].store(a.residual + begin + column);
        }
    }
    // Sums are taken relative to the row's first element: a large mean does not eat the variance.
    const float shift = __shfl_sync(kFullWarp, x[0].get(0), 0);
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        if ((p * 32 + lane) * W >= a.C) continue;
#pragma unroll
        for (int i = 0; i < W; ++i)
            sum += x[p].get(i) - shift;
    }
    const float mean = shift + warp_sum(sum) / static_cast<float>(a.C);
    float squares = 0.0F;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        if ((p * 32 + lane) * W >= a.C) continue;
#pragma unroll
        for (int i = 0; i < W; ++i) {
            const float centered = x[p].get(i) - mean;
            squares += centered * centered;
        }
    }
    const float rstd = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(a.C) + a.eps);
    if (lane == 0) {
        a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        const int column = (p * 32 + lane) * W;
        if (column >= a.C) continue;
        const P weight = P::load(a.weight + column);
        const P bias = P::load(a.bias + column);
        float out[W];
#pragma unroll
        for (int i = 0; i < W; ++i)
            out[i] = (x[p].get(i) - mean) * rstd * weight.get(i) + bias.get(i);
        P::from(out).store(a.out + begin + column);
    }
}

// One block a row, any C and alignment.
template <class T>
__global__ void __launch_bounds__(kAnyThreads)
    layernorm_forward_any_kernel(const ForwardArrays<T> a) {
    __shared__ float shared[2][kAnyThreads / 32];
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.C;
    const T* x = a.inp1 + begin;
    if (a.inp2 != nullptr) {
        T* residual = a.residual + begin;
        for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads)
            residual[i] = narrow<T>(widen(x[i]) + widen(a.inp2[begin + i]));
        x = residual;
        __syncthreads();
    }
    const float shift = widen(x[0]);
    float sum = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads)
        sum += widen(x[i]) - shift;
    const float mean =
        shift + block_sum<kAnyThreads / 32>(sum, shared[0]) / static_cast<float>(a.C);
    float squares = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads) {
        const float centered = widen(x[i]) - mean;
        squares += centered * centered;
    }
    const float variance =
        block_sum<kAnyThreads / 32>(squares, shared[1]) / static_cast<float>(a.C);
    const float rstd = 1.0F / sqrtf(variance + a.eps);
    if (threadIdx.x == 0) {
        a.mean[blockIdx.x] = mean;
        a.rstd[blockIdx.x] = rstd;
    }
    for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads) {
        const float xhat = (widen(x[i]) - mean) * rstd;
        a.out[begin + i] = narrow<T>(xhat * widen(a.weight[i]) + widen(a.bias[i]));
    }
}

template <class T, int kPacks>
void launch_forward_packs(Stream stream,
                          const char* op,
                          const TensorShape& shape,
                          const ForwardArrays<T>& a,
                          unsigned blocks) {
    const auto kernel = a.inp2 != nullptr ? layernorm_forward_kernel<T, kPacks, true>
                                          : layernorm_forward_kernel<T, kPacks, false>;
    launch_dependent(stream, op, shape, dim3(blocks), dim3(kForwardWarps * 32), 0, kernel, a);
}

// Lane floats are rounded up to one of 8, 16, 24, 32, 48, 64.
template <class T>
void launch_forward(Stream stream,
                    const ForwardArrays<T>& a,
                    const TensorShape& shape,
                    bool is_aligned) {
    constexpr int W = kPackWidth<T>;
    const char* op = a.inp2 == nullptr ? "layernorm_forward" : "residual_layernorm_forward";
    if (!is_aligned || a.C % W != 0 || a.C > 32 * kMaxLaneFloats) {
        const unsigned rows = grid_blocks(op, shape, a.N);
        layernorm_forward_any_kernel<T><<<rows, kAnyThreads, 0, native(stream)>>>(a);
        check_launch(op, shape);
        return;
    }
    const unsigned blocks = grid_blocks(op, shape, ceil_div<std::int64_t>(a.N, kForwardWarps));
    if (a.C <= 32 * 8) {
        launch_forward_packs<T, 8 / W>(stream, op, shape, a, blocks);
    } else if (a.C <= 32 * 16) {
        launch_forward_packs<T, 16 / W>(stream, op, shape, a, blocks);
    } else if (a.C <= 32 * 24) {
        launch_forward_packs<T, 24 / W>(stream, op, shape, a, blocks);
    } else if (a.C <= 32 * 32) {
        launch_forward_packs<T, 32 / W>(stream, op, shape, a, blocks);
    } else if (a.C <= 32 * 48) {
        launch_forward_packs<T, 48 / W>(stream, op, shape, a, blocks);
    } else {
        launch_forward_packs<T, 64 / W>(stream, op, shape, a, blocks);
    }
}

// ------------------------------------------------------------------------------------ backward

template <class T>
struct BackwardArrays {
    T* dinp;
    float* partials;  // (number of blocks, 2, C): sums for dweight, then for dbias
    const T* dout;
    const T* dresidual;  // may be null; dinp may be dout or dresidual: no __restrict__
    const T* inp;
    const T* weight;
    const float* mean;
    const float* rstd;
    std::int64_t N;
    int C;
};

// What a thread reads of R rows, from `first` on; rows past N and columns past C are zero.
template <class T, bool kHasResidual>
struct BackwardRows {
    // Without dresidual there is room for twice the rows.
    static constexpr int R = kHasResidual ? kBackwardRows : 2 * kBackwardRows;
    using P = Pack<T, kPackWidth<T>>;
    P dout[R], x[R], past[kHasResidual ? R : 1];
    float mean[R], rstd[R];

    // Row r of those that start at `first`: the second kBackwardRows are the ones that the block
    // would come to next, so that the order of the sums does not depend on R.
    __device__ __forceinline__ static std::int64_t row(std::int64_t first, int r) {
        const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBackwardRows;
        return first + r / kBackwardRows * step + r % kBackwardRows;
    }

    __device__ __forceinline__ void load(const BackwardArrays<T>& a,
                                         std::int64_t first,
                                         int column) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const bool is_read = column < a.C && row(first, r) < a.N;
            const std::int64_t offset = row(first, r) * a.C + column;
            dout[r] = is_read ? P::load(a.dout + offset) : P::zero();
            x[r] = is_read ? P::load(a.inp + offset) : P::zero();
            if constexpr (kHasResidual) {
                past[r] = is_read ? P::load(a.dresidual + offset) : P::zero();
            }
            mean[r] = is_read ? a.mean[row(first, r)] : 0.0F;
            rstd[r] = is_read ? a.rstd[row(first, r)] : 0.0F;
        }
    }
};

// Thread t owns columns t * W ... t * W + W - 1 of all rows of its block. The next rows are on
// their way while these are worked on. One barrier an iteration: the row sums alternate between two
// buffers.
template <class T, bool kHasResidual>
__global__ void __launch_bounds__(kMaxBackwardThreads)
    layernorm_backward_kernel(const BackwardArrays<T> a) {
    constexpr int W = kPackWidth<T>;
    constexpr int R = BackwardRows<T, kHasResidual>::R;
    using P = Pack<T, W>;
    __shared__ float2 row_sums[2][R][kMaxBackwardThreads / 32];
    wait_for_predecessor();
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int column = static_cast<int>(threadIdx.x) * W;
    const bool is_active = column < a.C;
    const float inv_C = 1.0F / static_cast<float>(a.C);
    const P weight = is_active ? P::load(a.weight + column) : P::zero();
    float dweight[W] = {};
    float dbias[W] = {};
    int buffer = 0;
    let_dependent_start();
    using Rows = BackwardRows<T, kHasResidual>;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * R;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kBackwardRows;
    Rows rows, next;
    next.load(a, begin, column);
    for (std::int64_t first = begin; first < a.N; first += step) {
        rows = next;
        next.load(a, first + step, column);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float sum_g = 0.0F;
            float sum_g_xhat = 0.0F;
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const float d = rows.dout[r].get(i);
                const float xhat = (rows.x[r].get(i) - rows.mean[r]) * rows.rstd[r];
                sum_g += d * weight.get(i);
                sum_g_xhat += d * weight.get(i) * xhat;
                dweight[i] += d * xhat;
                dbias[i] += d;
            }
            sum_g = warp_sum(sum_g);
            sum_g_xhat = warp_sum(sum_g_xhat);
            if (threadIdx.x % 32 == 0) row_sums[buffer][r][warp] = make_float2(sum_g, sum_g_xhat);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float mean_g = 0.0F;
            float mean_g_xhat = 0.0F;
            for (int w = 0; w < warps; ++w) {
                const float2 sums = row_sums[buffer][r][w];
                mean_g += sums.x;
                mean_g_xhat += sums.y;
            }
            mean_g *= inv_C;
            mean_g_xhat *= inv_C;
            if (!is_active || Rows::row(first, r) >= a.N) continue;
            rows.dout[r].forget_unpacked();
            rows.x[r].forget_unpacked();
            float dinp[W];
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const float xhat = (rows.x[r].get(i) - rows.mean[r]) * rows.rstd[r];
                const float g = rows.dout[r].get(i) * weight.get(i);
                dinp[i] = rows.rstd[r] * (g - mean_g - xhat * mean_g_xhat);
                if constexpr (kHasResidual) dinp[i] += rows.past[r].get(i);
            }
            P::from(dinp).store(a.dinp + Rows::row(first, r) * a.C + column);
        }
        buffer ^= 1;
    }
    if (!is_active) return;
    float* partial = a.partials + static_cast<std::int64_t>(blockIdx.x) * 2 * a.C + column;
    Pack<float, W>::from(dweight).store(partial);
    Pack<float, W>::from(dbias).store(partial + a.C);
}

// Partial sums of dweight and dbias: one thread a column, blockIdx.y takes every gridDim.y-th row.
template <class T>
__global__ void __launch_bounds__(kAnyThreads)
    layernorm_parameters_any_kernel(const BackwardArrays<T> a) {
    const int column = static_cast<int>(blockIdx.x) * kAnyThreads + static_cast<int>(threadIdx.x);
    if (column >= a.C) return;
    float dweight = 0.0F;
    float dbias = 0.0F;
    for (std::int64_t row = blockIdx.y; row < a.N; row += gridDim.y) {
        const float d = widen(a.dout[row * a.C + column]);
        dweight += d * (widen(a.inp[row * a.C + column]) - a.mean[row]) * a.rstd[row];
        dbias += d;
    }
    float* partial = a.partials + static_cast<std::int64_t>(blockIdx.y) * 2 * a.C + column;
    partial[0] = dweight;
    partial[a.C] = dbias;
}

// dinp, one block a row. Runs after the parameter sums: dinp may be the same memory as dout.
template <class T>
__global__ void __launch_bounds__(kAnyThreads)
    layernorm_backward_any_kernel(const BackwardArrays<T> a) {
    __shared__ float shared[2][kAnyThreads / 32];
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.C;
    const float mean = a.mean[blockIdx.x];
    const float rstd = a.rstd[blockIdx.x];
    float sum_g = 0.0F;
    float sum_g_xhat = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads) {
        const float g = widen(a.dout[begin + i]) * widen(a.weight[i]);
        sum_g += g;
        sum_g_xhat += g * (widen(a.inp[begin + i]) - mean) * rstd;
    }
    const float mean_g = block_sum<kAnyThreads / 32>(sum_g, shared[0]) / static_cast<float>(a.C);
    const float mean_g_xhat =
        block_sum<kAnyThreads / 32>(sum_g_xhat, shared[1]) / static_cast<float>(a.C);
    for (int i = static_cast<int>(threadIdx.x); i < a.C; i += kAnyThreads) {
        const float xhat = (widen(a.inp[begin + i]) - mean) * rstd;
        const float g = widen(a.dout[begin + i]) * widen(a.weight[i]);
        const float past = a.dresidual == nullptr ? 0.0F : widen(a.dresidual[begin + i]);
        a.dinp[begin + i] = narrow<T>(past + rstd * (g - mean_g - xhat * mean_g_xhat));
    }
}

template <class T>
int launch_backward(Stream stream,
                    const BackwardArrays<T>& a,
                    const TensorShape& shape,
                    bool is_aligned) {
    constexpr int W = kPackWidth<T>;
    constexpr const char* kOp = "layernorm_backward";
    const int threads = layernorm_backward_threads(a.C, W);
    if (is_aligned && a.C % W == 0 && threads <= kMaxBackwardThreads) {
        const int blocks = layernorm_backward_blocks(a.N, threads);
        const auto kernel = a.dresidual != nullptr ? layernorm_backward_kernel<T, true>
                                                   : layernorm_backward_kernel<T, false>;
        launch_dependent(stream, kOp, shape, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(threads)), 0, kernel, a);
        return blocks;
    }
    const int partials = layernorm_backward_any_blocks(a.N);
    const unsigned blocks = grid_blocks(kOp, shape, a.N);
    const dim3 grid(static_cast<unsigned>(ceil_div(a.C, kAnyThreads)),
                    static_cast<unsigned>(partials));
    layernorm_parameters_any_kernel<T><<<grid, kAnyThreads, 0, native(stream)>>>(a);
    layernorm_backward_any_kernel<T><<<blocks, kAnyThreads, 0, native(stream)>>>(a);
    check_launch(kOp, shape);
    return partials;
}

}  // namespace

void layernorm_forward(Stream stream, const LayerNormForward& args) {
    if (args.inp.numel() == 0) return;
    dispatch_float(args.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        const ForwardArrays<T> a = {nullptr,
                                    args.out.ptr<T>(),
                                    args.mean.ptr<float>(),
                                    args.rstd.ptr<float>(),
                                    args.inp.ptr<T>(),
                                    nullptr,
                                    args.weight.ptr<T>(),
                                    args.bias.ptr<T>(),
                                    args.inp.rows(),
                                    static_cast<int>(args.inp.dim(-1)),
                                    args.eps};
        launch_forward(stream, a, args.inp,
                       are_aligned(args.out, args.inp, args.weight, args.bias));
    });
}

void residual_layernorm_forward(Stream stream, const ResidualLayerNormForward& args) {
    if (args.inp1.numel() == 0) return;
    dispatch_float(args.inp1.dtype, [&](auto zero) {
        using T = decltype(zero);
        const ForwardArrays<T> a = {args.residual.ptr<T>(),
                                    args.out.ptr<T>(),
                                    args.mean.ptr<float>(),
                                    args.rstd.ptr<float>(),
                                    args.inp1.ptr<T>(),
                                    args.inp2.ptr<T>(),
                                    args.weight.ptr<T>(),
                                    args.bias.ptr<T>(),
                                    args.inp1.rows(),
                                    static_cast<int>(args.inp1.dim(-1)),
                                    args.eps};
        launch_forward(
            stream, a, args.inp1,
            are_aligned(args.residual, args.out, args.inp1, args.inp2, args.weight, args.bias));
    });
}

void layernorm_backward(Stream stream, const LayerNormBackward& args) {
    const int C = static_cast<int>(args.inp.dim(-1));
    float* partials = static_cast<float*>(args.scratch.data);
    int num_rows = 0;
    if (args.inp.numel() > 0) {
        dispatch_float(args.inp.dtype, [&](auto zero) {
            using T = decltype(zero);
            const BackwardArrays<T> a = {
                args.dinp.ptr<T>(),     partials,
                args.dout.ptr<T>(),     args.dresidual ? args.dresidual.ptr<T>() : nullptr,
                args.inp.ptr<T>(),      args.weight.ptr<T>(),
                args.mean.ptr<float>(), args.rstd.ptr<float>(),
                args.inp.rows(),        C};
            num_rows = launch_backward(
                stream, a, args.inp,
                are_aligned(args.dinp, args.dout, args.dresidual, args.inp, args.weight));
        });
    }
    dispatch_float(args.dweight.dtype, [&](auto zero) {
        using G = decltype(zero);
        sum_columns(stream, "layernorm_backward", args.dweight, args.dweight.ptr<G>(),
                    args.dbias.ptr<G>(), partials, num_rows, C, args.accumulate);
    });
}

}  // namespace ingot::cuda
