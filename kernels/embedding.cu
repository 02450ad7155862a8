// Backward gathers instead of scattering, so that no float is added atomically. Positions are put
// in order of (id, position) by counting: integer atomics give each position a slot in its id's
// list, and the list is then ordered by comparing its entries, so the atomics' order leaves no
// trace. The ordered list is cut into chunks of 32 whatever the ids are: a token that fills half
// the batch costs no more than others. A chunk writes the sums of ids that lie inside it; sums of
// ids that cross its ends go to scratch and are added in the order of chunks.
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/embedding.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kChunk = 32;      // entries of the ordered list that one warp adds
constexpr int kScanIds = 1024;  // ids that one block of the scan covers
constexpr int kUnroll = 4;      // rows of dout that a lane has in flight

// ------------------------------------------------------------------------------------- forward

// One warp a row.
template <class T, int W>
__global__ void __launch_bounds__(kThreads) embedding_forward_kernel(T* __restrict__ out,
                                                                     const int* __restrict__ ids,
                                                                     const T* __restrict__ wte,
                                                                     const T* __restrict__ wpe,
                                                                     std::int64_t N,
                                                                     int T_length,
                                                                     int C) {
    using P = Pack<T, W>;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
    if (row >= N) return;
    const T* token = wte + static_cast<std::int64_t>(ids[row]) * C;
    const T* position = wpe == nullptr ? nullptr : wpe + row % T_length * C;
    T* target = out + row * C;
#pragma unroll 4
    for (int column = static_cast<int>(threadIdx.x % 32) * W; column < C; column += 32 * W) {
        P x = P::load(token + column);
        if (position != nullptr) {
            const P y = P::load(position + column);
            float sum[W];
#pragma unroll
            for (int i = 0; i < W; ++i)
                sum[i] = x.get(i) + y.get(i);
            x = P::from(sum);
        }
        x.template store<Use::streaming>(target + column);  // leaves the cache to the table
    }
}

// ------------------------------------------------------------------------- backward: ordered list

// The parts of scratch.
struct Scratch {
    int* counts;   // (Vp) how often each id occurs
    int* starts;   // (Vp) where its list begins
    int* slots;    // (N) place of a position in its id's unordered list
    int* list;     // (N) positions by id
    int* ordered;  // (N) positions by (id, position)
    float* heads;  // (chunks, C) sum of the entries of the id that entered the chunk from the left
    float* tails;  // (chunks, C) sum of the entries of the id that leaves it to the right
};

__global__ void __launch_bounds__(kThreads)
    count_ids_kernel(const Scratch s, const int* __restrict__ ids, int N) {
    const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (i < N) s.slots[i] = atomicAdd(&s.counts[ids[i]], 1);
}

// starts = exclusive sum of counts. Each block first adds all counts before its own ids.
__global__ void __launch_bounds__(kScanIds) scan_counts_kernel(const Scratch s, int Vp) {
    __shared__ int shared[2][kScanIds / 32];
    const int first = static_cast<int>(blockIdx.x) * kScanIds;
    const int thread = static_cast<int>(threadIdx.x);
    int before = 0;
    for (int v = thread; v < first; v += kScanIds)
        before += s.counts[v];
    before = block_sum<kScanIds / 32>(before, shared[0]);
    const int count = first + thread < Vp ? s.counts[first + thread] : 0;
    int inclusive = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(kFullWarp, inclusive, offset);
        if (thread % 32 >= offset) inclusive += other;
    }
    if (thread % 32 == 31) shared[1][thread / 32] = inclusive;
    __syncthreads();
    for (int w = 0; w < thread / 32; ++w)
        before += shared[1][w];
    if (first + thread < Vp) s.starts[first + thread] = before + inclusive - count;
}

__global__ void __launch_bounds__(kThreads)
    place_positions_kernel(const Scratch s, const int* __restrict__ ids, int N) {
    const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (i < N) s.list[s.starts[ids[i]] + s.slots[i]] = i;
}

// An entry's place is the number of smaller positions in its id's list.
__global__ void __launch_bounds__(kThreads)
    order_positions_kernel(const Scratch s, const int* __restrict__ ids, int N) {
    const int e = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (e >= N) return;
    const int position = s.list[e];
    const int id = ids[position];
    const int start = s.starts[id];
    const int count = s.counts[id];
    int rank = 0;
    for (int k = 0; k < count; ++k)
        rank += s.list[start + k] < position ? 1 : 0;
    s.ordered[start + rank] = position;
}

// ---------------------------------------------------------------------------------- backward: sums

template <class T, class G>
struct Arrays {
    Scratch s;
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

// The id of entry e of the ordered list; -1 outside it.
template <class T, class G>
__device__ __forceinline__ int id_at(const Arrays<T, G>& a, int e) {
    return e < 0 || e >= a.N ? -1 : a.ids[a.s.ordered[e]];
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
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int after_in_chunk = __shfl_down_sync(kFullWarp, own_id, 1);
    const int first_id = __shfl_sync(kFullWarp, own_id, 0);
    const bool is_entry = lane < entries;
    const bool is_last = lane + 1 == entries;
    const int after = is_last ? id_at(a, begin + entries) : after_in_chunk;
    const bool is_head = own_id == first_id && id_at(a, begin - 1) == first_id;
    const bool ends = is_entry && after != own_id;
    const bool leaves = is_entry && is_last && after == own_id;
    return {__ballot_sync(kFullWarp, ends && !is_head),
            __ballot_sync(kFullWarp, (ends || leaves) && is_head),
            __ballot_sync(kFullWarp, leaves && !is_head)};
}

// One warp a chunk and 32 W columns (blockIdx.y). The rows of dwte that a step adds to are read
// together with its rows of dout.
template <class T, class G, int W>
__global__ void __launch_bounds__(kThreads) sum_chunks_kernel(const Arrays<T, G> a) {
    using P = Pack<T, W>;
    using Q = Pack<G, W>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int chunk = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int begin = chunk * kChunk;
    if (begin >= a.N) return;
    const int column = (static_cast<int>(blockIdx.y) * 32 + lane) * W;
    const bool is_active = column < a.C;
    const int entries = min(kChunk, a.N - begin);
    const int own_position = lane < entries ? a.s.ordered[begin + lane] : 0;
    const int own_id = lane < entries ? a.ids[own_position] : -1;
    const ChunkEnds ends = find_ends(a, begin, entries, own_id);
    const std::int64_t partial = static_cast<std::int64_t>(chunk) * a.C + column;
    float sums[W] = {};
    for (int k = 0; k < entries; k += kUnroll) {
        P rows[kUnroll];
        Q old[kUnroll];
        G* targets[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const std::int64_t position = __shfl_sync(kFullWarp, own_position, k + u);
            const std::int64_t id = __shfl_sync(kFullWarp, own_id, k + u);
            const bool is_read = is_active && k + u < entries;
            const bool is_direct = is_active && (ends.direct >> (k + u) & 1U) != 0;
            targets[u] = a.dwte + id * a.C + column;
            rows[u] = is_read ? P::load(a.dout + position * a.C + column) : P::zero();
            old[u] = is_direct && a.accumulate_dwte ? Q::load(targets[u]) : Q::zero();
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int i = 0; i < W; ++i)
                sums[i] += rows[u].get(i);
            if (!ends.any(k + u)) continue;
            if (is_active && (ends.direct >> (k + u) & 1U) != 0) {
#pragma unroll
                for (int i = 0; i < W; ++i)
                    sums[i] += old[u].get(i);
                Q::from(sums).store(targets[u]);
            } else if (is_active) {
                const bool is_head = (ends.head >> (k + u) & 1U) != 0;
                Pack<float, W>::from(sums).store((is_head ? a.s.heads : a.s.tails) + partial);
            }
#pragma unroll
            for (int i = 0; i < W; ++i)
                sums[i] = 0.0F;
        }
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

// dwpe: one thread a pack of one row t, batches in order. Rows t >= T become 0 or stay.
template <class T, class G, int W>
__global__ void __launch_bounds__(kThreads) sum_positions_kernel(const Arrays<T, G> a) {
    using P = Pack<T, W>;
    const int packs = a.C / W;
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int t = static_cast<int>(index / packs);
    if (t >= a.max_T || (t >= a.T_length && a.accumulate_dwpe)) return;
    const int column = static_cast<int>(index % packs) * W;
    float sums[W] = {};
    if (t < a.T_length) {
        const T* source = a.dout + static_cast<std::int64_t>(t) * a.C + column;
        const std::int64_t stride = static_cast<std::int64_t>(a.T_length) * a.C;
        const int B = a.N / a.T_length;
        int b = 0;
        for (; b + 2 * kUnroll <= B; b += 2 * kUnroll) {
            P rows[2 * kUnroll];
#pragma unroll
            for (int u = 0; u < 2 * kUnroll; ++u)
                rows[u] = P::load(source + (b + u) * stride);
#pragma unroll
            for (int u = 0; u < 2 * kUnroll; ++u) {
#pragma unroll
                for (int i = 0; i < W; ++i)
                    sums[i] += rows[u].get(i);
            }
        }
        for (; b < B; ++b) {
            const P row = P::load(source + b * stride);
#pragma unroll
            for (int i = 0; i < W; ++i)
                sums[i] += row.get(i);
        }
    }
    write_sums(a.dwpe + static_cast<std::int64_t>(t) * a.C + column, sums, a.accumulate_dwpe);
}

// --------------------------------------------------------------------------------------- launchers

constexpr std::int64_t kAlignBytes = 256;

// Lays the parts out behind `base` and returns their end; base may be null to measure.
std::int64_t lay_out(char* base, std::int64_t N, std::int64_t Vp, std::int64_t C, Scratch* s) {
    std::int64_t offset = 0;
    const auto take = [&](std::int64_t elements) {
        char* place = base + offset;
        offset += ceil_div<std::int64_t>(elements * 4, kAlignBytes) * kAlignBytes;
        return static_cast<void*>(place);
    };
    const std::int64_t chunks = ceil_div<std::int64_t>(N, kChunk);
    s->counts = static_cast<int*>(take(Vp));
    s->starts = static_cast<int*>(take(Vp));
    s->slots = static_cast<int*>(take(N));
    s->list = static_cast<int*>(take(N));
    s->ordered = static_cast<int*>(take(N));
    s->heads = static_cast<float*>(take(chunks * C));
    s->tails = static_cast<float*>(take(chunks * C));
    return offset;
}

template <class T, class G, int W>
void launch_backward(Stream stream, const Arrays<T, G>& a) {
    const auto blocks_of = [](std::int64_t items, std::int64_t per_block) {
        return static_cast<unsigned>(ceil_div<std::int64_t>(items, per_block));
    };
    const cudaStream_t queue = native(stream);
    if (a.dwpe != nullptr) {
        const std::int64_t packs = static_cast<std::int64_t>(a.max_T) * (a.C / W);
        sum_positions_kernel<T, G, W><<<blocks_of(packs, kThreads), kThreads, 0, queue>>>(a);
    }
    const unsigned position_blocks = blocks_of(a.N, kThreads);
    CUDA_CHECK(cudaMemsetAsync(a.s.counts, 0, static_cast<std::size_t>(a.Vp) * sizeof(int), queue));
    count_ids_kernel<<<position_blocks, kThreads, 0, queue>>>(a.s, a.ids, a.N);
    scan_counts_kernel<<<blocks_of(a.Vp, kScanIds), kScanIds, 0, queue>>>(a.s, a.Vp);
    place_positions_kernel<<<position_blocks, kThreads, 0, queue>>>(a.s, a.ids, a.N);
    order_positions_kernel<<<position_blocks, kThreads, 0, queue>>>(a.s, a.ids, a.N);
    const dim3 chunks(blocks_of(a.N, kChunk * kWarps), blocks_of(a.C, 32 * W));
    sum_chunks_kernel<T, G, W><<<chunks, kThreads, 0, queue>>>(a);
    join_chunks_kernel<T, G, W><<<chunks, kThreads, 0, queue>>>(a);
    if (!a.accumulate_dwte) {
        zero_missing_ids_kernel<T, G, W><<<blocks_of(a.Vp, kWarps), kThreads, 0, queue>>>(a);
    }
}

template <class T, int W>
void launch_forward(Stream stream, const EmbeddingForward& args) {
    const std::int64_t N = args.ids.numel();
    const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(N, kWarps));
    embedding_forward_kernel<T, W><<<blocks, kThreads, 0, native(stream)>>>(
        args.out.ptr<T>(), args.ids.ptr<std::int32_t>(), args.wte.ptr<T>(),
        args.wpe ? args.wpe.ptr<T>() : nullptr, N, static_cast<int>(args.ids.dim(-1)),
        static_cast<int>(args.out.dim(-1)));
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
            lay_out(static_cast<char*>(args.scratch.data), N, a.Vp, C, &a.s);
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

std::int64_t embedding_backward_scratch_bytes(std::int64_t num_tokens,
                                              std::int64_t Vp,
                                              std::int64_t C) {
    Scratch unused;
    return lay_out(nullptr, num_tokens, Vp, C, &unused);
}

}  // namespace ingot::cuda
