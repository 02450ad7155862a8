// Backward gathers instead of scattering, so that no float is added atomically. The positions in
// order of (id, position) are cut into chunks of 32 whatever the ids are: a token that fills half
// the batch costs no more than others. A chunk writes the sums of ids that lie inside it; sums of
// ids that cross its ends go to scratch and are added in the order of chunks.
// Floor: forward, the rows of wte that occur and wpe once, out once; backward, dout once, and the
// rows of dwte that occur and of dwpe, read and written when they accumulate.
#include "kernels/device/dependent.cuh"
#include "kernels/device/embedding_order.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/embedding.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = kEmbeddingWarps;
constexpr int kThreads = kWarps * 32;
constexpr int kChunk = kEmbeddingChunk;
constexpr int kForwardRows = 4;  // sequences that a forward warp treats at once
constexpr int kUnroll = 4;       // entries that a lane has in flight, and as many before them

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

// ---------------------------------------------------------------------------------- backward: sums

template <class T, class G>
struct Arrays {
    EmbeddingScratch s;
    EmbeddingGrid grid;
    G* dwte;
    G* dwpe;  // may be null
    const T* dout;
    const int* ids;
    int N, T_length, max_T, Vp, C;
    bool accumulate_dwte, accumulate_dwpe;
};

template <class G, int W>
__device__ __forceinline__ void write_sums(G* target, const float (&sums)[W], bool accumulate) {
    float values[W];
    const auto old = accumulate ? Pack<G, W>::load(target) : Pack<G, W>::zero();
#pragma unroll
    for (int i = 0; i < W; ++i)
        values[i] = old.get(i) + sums[i];
    Pack<G, W>::from(values).store(target);
}

// The id of entry e of the ordered list; -1 outside it. Without a branch: the loads of several
// entries are under way together.
template <class T, class G>
__device__ __forceinline__ int id_at(const Arrays<T, G>& a, int e) {
    const int inside = min(max(e, 0), a.N - 1);
    const int id = a.ids[a.s.ordered[inside]];
    return inside == e ? id : -1;
}

// Where the sum after an entry of a chunk goes: bit k of a mask is for entry k.
struct ChunkEnds {
    unsigned direct;  // the id lies inside the chunk and ends here: to dwte
    unsigned head;    // the id entered from the left and ends here, or fills the chunk: to heads
    unsigned tail;    // the id began here and goes on in the next chunk: to tails
    __device__ __forceinline__ bool any(int k) const {
        return ((direct | head | tail) >> k & 1U) != 0;
    }
};

template <class T, class G>
__device__ __forceinline__ ChunkEnds
find_ends(const Arrays<T, G>& a, int begin, int entries, int own_id) {
    const int before_chunk = id_at(a, begin - 1);
    const int after_chunk = id_at(a, begin + entries);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int after_in_chunk = __shfl_down_sync(kFullWarp, own_id, 1);
    const int first_id = __shfl_sync(kFullWarp, own_id, 0);
    const bool is_entry = lane < entries;
    const bool is_last = lane + 1 == entries;
    const int after = is_last ? after_chunk : after_in_chunk;
    const bool is_head = own_id == first_id && before_chunk == first_id;
    const bool ends = is_entry && after != own_id;
    const bool leaves = is_entry && is_last && after == own_id;
    return {__ballot_sync(kFullWarp, ends && !is_head),
            __ballot_sync(kFullWarp, (ends || leaves) && is_head),
            __ballot_sync(kFullWarp, leaves && !is_head)};
}

// Entries k ... k + kUnroll - 1 of a chunk: their rows of dout, and the rows of dwte that the sums
// ending there are added to.
template <class T, class G, int W>
struct ChunkRows {
    Pack<T, W> dout[kUnroll];
    Pack<G, W> old[kUnroll];

    // All lanes call it. own_position and own_id are of entry `lane`; direct is that of ChunkEnds.
    __device__ __forceinline__ void load(const Arrays<T, G>& a,
                                         int own_position,
                                         int own_id,
                                         unsigned direct,
                                         int k,
                                         int entries,
                                         int column) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const std::int64_t position = __shfl_sync(kFullWarp, own_position, k + u);
            const std::int64_t id = __shfl_sync(kFullWarp, own_id, k + u);
            const bool is_read = k + u < entries && column < a.C;
            const bool is_old_read = is_read && a.accumulate_dwte && (direct >> (k + u) & 1U) != 0;
            dout[u] =
                is_read ? Pack<T, W>::load(a.dout + position * a.C + column) : Pack<T, W>::zero();
            old[u] = is_old_read
                         ? Pack<G, W>::template load<Use::streaming>(a.dwte + id * a.C + column)
                         : Pack<G, W>::zero();
        }
    }
};

// One warp a chunk and 32 W columns. The next rows are on their way while these are added. Rows of
// dwte are streamed, which leaves L2 to dout.
template <class T, class G, int W>
__device__ __forceinline__ void sum_chunk(const Arrays<T, G>& a, int chunk, int column) {
    const int begin = chunk * kChunk;
    if (begin >= a.N) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int entries = min(kChunk, a.N - begin);
    const int own_position = lane < entries ? a.s.ordered[begin + lane] : 0;
    const int own_id = lane < entries ? a.ids[own_position] : -1;
    const ChunkEnds ends = find_ends(a, begin, entries, own_id);
    const std::int64_t partial = static_cast<std::int64_t>(chunk) * a.C + column;
    float sums[W] = {};
    ChunkRows<T, G, W> rows, next;
    next.load(a, own_position, own_id, ends.direct, 0, entries, column);
    for (int k = 0; k < entries; k += kUnroll) {
        rows = next;
        next.load(a, own_position, own_id, ends.direct, k + kUnroll, entries, column);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int i = 0; i < W; ++i)
                sums[i] += rows.dout[u].get(i);
            const std::int64_t id = __shfl_sync(kFullWarp, own_id, k + u);
            if (!ends.any(k + u)) continue;
            if (column < a.C && (ends.direct >> (k + u) & 1U) != 0) {
#pragma unroll
                for (int i = 0; i < W; ++i)
                    sums[i] += rows.old[u].get(i);
                Pack<G, W>::from(sums).template store<Use::streaming>(a.dwte + id * a.C + column);
            } else if (column < a.C) {
                const bool is_head = (ends.head >> (k + u) & 1U) != 0;
                Pack<float, W>::from(sums).store((is_head ? a.s.heads : a.s.tails) + partial);
            }
#pragma unroll
            for (int i = 0; i < W; ++i)
                sums[i] = 0.0F;
        }
    }
}

// One warp a row t of dwpe and 32 W columns, batches in order. Rows t >= T become 0 or stay.
template <class T, class G, int W>
__device__ __forceinline__ void sum_position(const Arrays<T, G>& a, int t, int column) {
    using P = Pack<T, W>;
    constexpr int kPositionUnroll = P::kBytes > 8 ? 8 : 16;  // rows in flight
    if (t >= a.max_T || column >= a.C || (t >= a.T_length && a.accumulate_dwpe)) return;
    float sums[W] = {};
    if (t < a.T_length) {
        const T* source = a.dout + static_cast<std::int64_t>(t) * a.C + column;
        const std::int64_t stride = static_cast<std::int64_t>(a.T_length) * a.C;
        const int B = a.N / a.T_length;
        for (int b = 0; b < B; b += kPositionUnroll) {
            P rows[kPositionUnroll];
#pragma unroll
            for (int u = 0; u < kPositionUnroll; ++u)
                rows[u] = b + u < B ? P::load(source + (b + u) * stride) : P::zero();
#pragma unroll
            for (int u = 0; u < kPositionUnroll; ++u) {
#pragma unroll
                for (int i = 0; i < W; ++i)
                    sums[i] += rows[u].get(i);
            }
        }
    }
    write_sums(a.dwpe + static_cast<std::int64_t>(t) * a.C + column, sums, a.accumulate_dwpe);
}

template <class T, class G, int W>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 4 ? 2 : 3)
    sum_rows_kernel(const Arrays<T, G> a) {
    const EmbeddingWork work =
        embedding_work(a.grid, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x) / 32);
    const int column = (work.slice * 32 + static_cast<int>(threadIdx.x) % 32) * W;
    if (work.is_position) {
        sum_position<T, G, W>(a, work.item, column);
    } else {
        sum_chunk<T, G, W>(a, work.item, column);
    }
}

// Finishes the ids that begin in one chunk and end in another: one warp a chunk of their beginning.
template <class T, class G, int W>
__global__ void __launch_bounds__(kThreads) join_chunks_kernel(const Arrays<T, G> a) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int chunk = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int end = (chunk + 1) * kChunk;
    if (end >= a.N) return;
    const int id = id_at(a, end - 1);
    if (id_at(a, end) != id) return;
    const int begin = a.s.starts[id];
    if (begin < chunk * kChunk) return;  // an earlier chunk's
    const int column = (static_cast<int>(blockIdx.y) * 32 + lane) * W;
    if (column >= a.C) return;
    const int last_chunk = (begin + a.s.counts[id] - 1) / kChunk;
    const auto tail =
        Pack<float, W>::load(a.s.tails + static_cast<std::int64_t>(chunk) * a.C + column);
    float sums[W];
#pragma unroll
    for (int i = 0; i < W; ++i)
        sums[i] = tail.get(i);
#pragma unroll 4
    for (int c = chunk + 1; c <= last_chunk; ++c) {
        const auto head =
            Pack<float, W>::load(a.s.heads + static_cast<std::int64_t>(c) * a.C + column);
#pragma unroll
        for (int i = 0; i < W; ++i)
            sums[i] += head.get(i);
    }
    write_sums(a.dwte + static_cast<std::int64_t>(id) * a.C + column, sums, a.accumulate_dwte);
}

// Overwriting: rows of ids that do not occur become 0. One warp a row.
template <class T, class G, int W>
__global__ void __launch_bounds__(kThreads) zero_missing_ids_kernel(const Arrays<T, G> a) {
    const int v = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    if (v >= a.Vp || a.s.counts[v] != 0) return;
    G* row = a.dwte + static_cast<std::int64_t>(v) * a.C;
    for (int column = static_cast<int>(threadIdx.x % 32) * W; column < a.C; column += 32 * W)
        Pack<G, W>::zero().store(row + column);
}

// --------------------------------------------------------------------------------------- launchers

template <class T, class G, int W>
void launch_backward(Stream stream, Arrays<T, G> a) {
    const cudaStream_t queue = native(stream);
    order_positions(queue, a.s, a.ids, a.N, a.Vp);
    a.grid = embedding_grid(a.N, a.C, a.dwpe == nullptr ? 0 : a.max_T, W);
    sum_rows_kernel<T, G, W><<<static_cast<unsigned>(a.grid.num_blocks()), kThreads, 0, queue>>>(a);
    const dim3 chunks(static_cast<unsigned>(a.grid.chunk_blocks),
                      static_cast<unsigned>(a.grid.slices));
    join_chunks_kernel<T, G, W><<<chunks, kThreads, 0, queue>>>(a);
    if (!a.accumulate_dwte) {
        const auto blocks = static_cast<unsigned>(ceil_div(a.Vp, kWarps));
        zero_missing_ids_kernel<T, G, W><<<blocks, kThreads, 0, queue>>>(a);
    }
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
    const unsigned blocks = grid_blocks("embedding_forward", args.out, slices * slice_blocks);
    launch_dependent(stream, dim3(blocks), dim3(kThreads), embedding_forward_kernel<T, W>, a);
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
    check_launch("embedding_forward", args.out);
}

void embedding_backward(Stream stream, const EmbeddingBackward& args) {
    const std::int64_t N = args.ids.numel();
    const std::int64_t C = args.dwte.dim(-1);
    if (N == 0) {
        if (!args.accumulate_dwte) fill_zero(stream, args.dwte);
        if (args.dwpe && !args.accumulate_dwpe) fill_zero(stream, args.dwpe);
        return;
    }
    dispatch_float(args.dout.dtype, [&](auto activation) {
        using T = decltype(activation);
        dispatch_float(args.dwte.dtype, [&](auto gradient) {
            using G = decltype(gradient);
            Arrays<T, G> a = {{},
                              {},
                              args.dwte.ptr<G>(),
                              args.dwpe ? args.dwpe.ptr<G>() : nullptr,
                              args.dout.ptr<T>(),
                              args.ids.ptr<std::int32_t>(),
                              static_cast<int>(N),
                              static_cast<int>(args.ids.dim(-1)),
                              args.dwpe ? static_cast<int>(args.dwpe.dim(0)) : 0,
                              static_cast<int>(args.dwte.dim(0)),
                              static_cast<int>(C),
                              args.accumulate_dwte,
                              args.accumulate_dwpe};
            lay_out_embedding_scratch(static_cast<char*>(args.scratch.data), N, a.Vp, C, &a.s);
            constexpr int W = 4;  // a warp reads and writes whole sectors of both dtypes
            if (C % W == 0 && are_aligned(args.dout, args.dwte, args.dwpe, args.scratch)) {
                launch_backward<T, G, W>(stream, a);
            } else {
                launch_backward<T, G, 1>(stream, a);
            }
        });
    });
    check_launch("embedding_backward", args.dout);
}

}  // namespace ingot::cuda
