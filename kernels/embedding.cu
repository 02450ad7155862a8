// Floor: forward, the rows of wte that occur and wpe once, out once; backward, dout once, and the
// rows of dwte that occur and of dwpe, read and written when they accumulate.
#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/embedding.h"
#include "kernels/embedding_sums.cuh"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kSumThreads = kEmbeddingWarps * 32;
constexpr int kForwardRows = 4;  // sequences that a forward warp treats at once

// ------------------------------------------------------------------------------------- forward

template <class T>
struct ForwardArrays {
    T* out;
    const int* ids;
    const T* wte;
    const T* wpe;  // may be null
    int B, T_length, C;
    std::int64_t slice_blocks;
};

// One warp a position of kForwardRows sequences and a slice of columns; neighbouring warps share
// the position, and so the row of wpe. The grid walks over slices, so that the slice of wte stays
// in L2 and a row that occurs again is read from there.
template <class T, int W>
__global__ void __launch_bounds__(kThreads, 6) embedding_forward_kernel(const ForwardArrays<T> a) {
    using P = Pack<T, W>;
    let_dependent_start();
    wait_for_predecessor();
    const std::int64_t slice = blockIdx.x / a.slice_blocks;
    const std::int64_t group = (blockIdx.x - slice * a.slice_blocks) * kWarps + threadIdx.x / 32;
    const int groups = (a.B + kForwardRows - 1) / kForwardRows;  // of sequences
    const std::int64_t t = group / groups;
    const int first = static_cast<int>(group % groups) * kForwardRows;
    const std::int64_t column = (slice * 32 + threadIdx.x % 32) * W;
    if (t >= a.T_length || column >= a.C) return;
    int token[kForwardRows];
#pragma unroll
    for (int r = 0; r < kForwardRows; ++r) {
        const std::int64_t row = static_cast<std::int64_t>(first + r) * a.T_length + t;
        token[r] = first + r < a.B ? a.ids[row] : -1;
    }
    P x[kForwardRows];
#pragma unroll
    for (int r = 0; r < kForwardRows; ++r) {
        const T* source = a.wte + static_cast<std::int64_t>(token[r]) * a.C + column;
        x[r] = token[r] >= 0 ? P::load(source) : P::zero();
    }
    const P position = a.wpe != nullptr ? P::load(a.wpe + t * a.C + column) : P::zero();
#pragma unroll
    for (int r = 0; r < kForwardRows; ++r) {
        if (token[r] < 0) continue;
        if (a.wpe != nullptr) {
            float sum[W];
#pragma unroll
            for (int i = 0; i < W; ++i)
                sum[i] = x[r].get(i) + position.get(i);
            x[r] = P::from(sum);
        }
        const std::int64_t row = static_cast<std::int64_t>(first + r) * a.T_length + t;
        x[r].template store<Use::streaming>(a.out + row * a.C + column);  // leaves L2 to the table
    }
}

// ------------------------------------------------------------------------------------ backward

__global__ void __launch_bounds__(kThreads) clear_kernel(int* data, int count) {
    let_dependent_start();
    wait_for_predecessor();
    const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (i < count) data[i] = 0;
}

template <class T, class G, int W>
__global__ void __launch_bounds__(kSumThreads, 8) sum_rows_kernel(const EmbeddingArrays<T, G> a) {
    __shared__ WarpRings<T, G, W> rings[kEmbeddingWarps];
    __shared__ int number;
    let_dependent_start();
    wait_for_predecessor();
    if (threadIdx.x == 0) number = atomicAdd(a.s.started, 1);
    __syncthreads();
    const EmbeddingWork work = a.grid.work(number);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int item = work.item * kEmbeddingWarps + warp;
    const int column = (work.slice * 32 + static_cast<int>(threadIdx.x) % 32) * W;
    if (work.is_position) {
        sum_position<T, G, W>(a, rings[warp].position, item, column);
    } else {
        sum_chunk<T, G, W>(a, rings[warp], item, work.slice, column);
    }
}

// --------------------------------------------------------------------------------------- launchers

template <class T, class G, int W>
void launch_backward(Stream stream, const EmbeddingBackward& args) {
    const std::int64_t N = args.order.dim(0);
    const std::int64_t C = args.dwte.dim(-1);
    const std::int64_t max_T = args.dwpe ? args.dwpe.dim(0) : 0;
    EmbeddingArrays<T, G> a = {};
    a.grid = embedding_grid(N, C, max_T, W);
    lay_out_embedding_scratch(static_cast<char*>(args.scratch.data), N, C, &a.s);
    a.dwte = args.dwte.ptr<G>();
    a.dwpe = args.dwpe ? args.dwpe.ptr<G>() : nullptr;
    a.dout = args.dout.ptr<T>();
    a.ordered = static_cast<const TokenEntry*>(args.order.data);
    a.N = static_cast<int>(N);
    a.chunks = static_cast<int>(ceil_div<std::int64_t>(N, kEmbeddingChunk));
    a.T_length = static_cast<int>(args.dout.dim(1));
    a.max_T = static_cast<int>(max_T);
    a.C = static_cast<int>(C);
    a.accumulate_dwpe = args.accumulate_dwpe;
    const int cleared = 1 + a.chunks * a.grid.slices;
    const auto clear_blocks = static_cast<unsigned>(ceil_div(cleared, kThreads));
    constexpr const char* kOp = "embedding_backward";
    const unsigned blocks = grid_blocks(kOp, args.dout, a.grid.num_blocks());
    launch_dependent(stream, kOp, args.dout, dim3(clear_blocks), dim3(kThreads), 0, clear_kernel,
                     a.s.started, cleared);
    launch_dependent(stream, kOp, args.dout, dim3(blocks), dim3(kSumThreads), 0,
                     sum_rows_kernel<T, G, W>, a);
}

template <class T, int W>
void launch_forward(Stream stream, const EmbeddingForward& args) {
    const std::int64_t B = args.ids.dim(0);
    const std::int64_t T_length = args.ids.dim(1);
    const std::int64_t C = args.out.dim(-1);
    const std::int64_t warps = ceil_div<std::int64_t>(B, kForwardRows) * T_length;
    const std::int64_t slice_blocks = ceil_div<std::int64_t>(warps, kWarps);
    const std::int64_t slices = ceil_div<std::int64_t>(C, 32 * W);
    const ForwardArrays<T> a = {args.out.ptr<T>(),   args.ids.ptr<std::int32_t>(),
                                args.wte.ptr<T>(),   args.wpe ? args.wpe.ptr<T>() : nullptr,
                                static_cast<int>(B), static_cast<int>(T_length),
                                static_cast<int>(C), slice_blocks};
    constexpr const char* kOp = "embedding_forward";
    const unsigned blocks = grid_blocks(kOp, args.out, slices * slice_blocks);
    launch_dependent(stream, kOp, args.out, dim3(blocks), dim3(kThreads), 0,
                     embedding_forward_kernel<T, W>, a);
}

}  // namespace

void embedding_forward(Stream stream, const EmbeddingForward& args) {
    if (args.out.numel() == 0) return;
    dispatch_float(args.out.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int W = kPackWidth<T>;
        if (args.out.dim(-1) % W == 0 && are_aligned(args.out, args.wte, args.wpe)) {
            launch_forward<T, W>(stream, args);
        } else {
            launch_forward<T, 1>(stream, args);
        }
    });
}

void embedding_backward(Stream stream, const EmbeddingBackward& args) {
    const std::int64_t C = args.dwte.dim(-1);
    if (!args.accumulate_dwte) fill_zero(stream, args.dwte);  // for the ids that do not occur
    if (args.order.dim(0) == 0) {
        if (args.dwpe && !args.accumulate_dwpe) fill_zero(stream, args.dwpe);
        return;
    }
    dispatch_float(args.dout.dtype, [&](auto activation) {
        using T = decltype(activation);
        dispatch_float(args.dwte.dtype, [&](auto gradient) {
            using G = decltype(gradient);
            constexpr int W = 4;  // a warp reads and writes whole sectors of both dtypes
            if (C % W == 0 && are_aligned(args.dout, args.dwte, args.dwpe, args.scratch)) {
                launch_backward<T, G, W>(stream, args);
            } else {
                launch_backward<T, G, 1>(stream, args);
            }
        });
    });
}

}  // namespace ingot::cuda
