// The sums of the embedding's backward pass. They gather instead of scattering, so that no float is
// added atomically. Each warp adds rows in a fixed order, while the next ones are on their way
// through a ring in shared memory: registers could not hold as many as memory needs in flight.
//
// The positions in order of (id, position) are cut into chunks, one a warp, near every 16th entry
// and where an id begins: a chunk holds all entries of its ids. Only an id to which an aligned
// group of 16 entries belongs, with no beginning among them, is cut as well: many warps then share
// its rows. The sums of its parts are published in scratch, and the chunk where it ends adds them
// in their order.
#pragma once

#include "engine/core/token_order.h"
#include "kernels/device/embedding_grid.h"
#include "kernels/device/packed.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/device/reduce.cuh"

namespace ingot::cuda {

template <class T, class G>
struct EmbeddingArrays {
    EmbeddingScratch s;
    EmbeddingGrid grid;
    G* dwte;
    G* dwpe;  // may be null
    const T* dout;
    const TokenEntry* ordered;
    int N, chunks, T_length, max_T, C;
    bool accumulate_dwpe;
};

template <class T, class G>
__device__ __forceinline__ int* published_flag(const EmbeddingArrays<T, G>& a,
                                               int chunk,
                                               int slice) {
    return a.s.published + static_cast<std::int64_t>(chunk) * a.grid.slices + slice;
}

// ------------------------------------------------------------------------------- rows in flight

// A slot holds a warp's columns of one row, W a lane. A lane takes only what it requested itself.
template <class T, int W, int Slots>
struct RowRing {
    static constexpr int kSlots = Slots;
    alignas(16) T rows[Slots][32 * W];

    // source: this lane's columns of the row.
    __device__ __forceinline__ void request(int slot, const T* source) {
        constexpr int kBytes = W * static_cast<int>(sizeof(T));
        T* target = &rows[slot][threadIdx.x % 32 * W];
        if constexpr (kBytes == 16) {
            ptx::copy_async_16(ptx::shared_address(target), source, true);
        } else if constexpr (kBytes == 8) {
            ptx::copy_async_8(ptx::shared_address(target), source, true);
        } else {
            Pack<T, W>::load(source).store(target);
        }
    }
    __device__ __forceinline__ Pack<T, W> take(int slot) const {
        return Pack<T, W>::load(&rows[slot][threadIdx.x % 32 * W]);
    }
};

template <class T, class G, int W>
struct ChunkRings {
    RowRing<T, W, kEmbeddingChunkSlots> dout;
    RowRing<G, W, kEmbeddingChunkSlots> dwte;
};

// What a warp has in shared memory.
template <class T, class G, int W>
union WarpRings {
    ChunkRings<T, G, W> chunk;
    RowRing<float, W, kEmbeddingChunkSlots> parts;
    RowRing<T, W, kEmbeddingPositionSlots> position;
};

// Calls request(k, slot) for rows 0 ... count - 1, and consume(k, slot) in the same order once what
// was requested for row k has arrived. Slots - 1 rows are on their way.
template <int Slots, class Request, class Consume>
__device__ __forceinline__ void stream_rows(int count, Request request, Consume consume) {
    for (int k = 0; k < Slots - 1; ++k) {
        if (k < count) request(k, k);
        ptx::copy_async_commit();
    }
    for (int k = 0; k < count; ++k) {
        ptx::copy_async_wait<Slots - 2>();
        const int next = k + Slots - 1;  // takes the slot of row k - 1
        if (next < count) request(next, next % Slots);
        ptx::copy_async_commit();
        consume(k, k % Slots);
    }
}

template <class T, int W>
__device__ __forceinline__ void add_row(float (&sums)[W], const Pack<T, W>& row) {
#pragma unroll
    for (int i = 0; i < W; ++i)
        sums[i] += row.get(i);
}

// -------------------------------------------------------------------------------------- chunks

// The entries of one chunk, one a lane. A chunk that is entered holds that one id alone.
struct Chunk {
    int index;
    int begin, end;   // lanes whose entries belong to the chunk
    TokenEntry own;   // position 0 and id -1 past the last entry
    unsigned ends;    // bit k: the id of lane k ends there
    bool is_entered;  // the first id began in an earlier chunk
    bool is_left;     // the last id goes on in the next chunk

    // Whether the sum after lane k is that of all entries of its id.
    __device__ __forceinline__ bool is_whole(int k) const {
        return !is_entered && (ends >> k & 1U) != 0;
    }
};

// The lanes look at entries 16 index ... 16 index + 31. The chunk goes from where the first id
// begins in the lower half to where the first begins in the upper half; a half in which none begins
// is entered from the left. All lanes of a warp call it.
__device__ __forceinline__ Chunk find_chunk(const TokenEntry* ordered, int N, int index) {
    static_assert(2 * kEmbeddingChunk == 32, "a lane for each entry that may belong to the chunk");
    Chunk chunk;
    const int first = index * kEmbeddingChunk;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    chunk.index = index;
    chunk.own = first + lane < N ? ordered[first + lane] : TokenEntry{0, -1};
    const int before_first = first > 0 ? ordered[first - 1].id : -1;
    const int left = __shfl_up_sync(kFullWarp, chunk.own.id, 1);
    const int right = __shfl_down_sync(kFullWarp, chunk.own.id, 1);
    const int before = lane == 0 ? before_first : left;
    const unsigned begins = __ballot_sync(kFullWarp, chunk.own.id != before);
    const int in_lower = static_cast<int>(begins & ((1U << kEmbeddingChunk) - 1));
    const int in_upper = static_cast<int>(begins >> kEmbeddingChunk);
    chunk.is_entered = in_lower == 0;
    chunk.begin = chunk.is_entered ? 0 : __ffs(in_lower) - 1;
    chunk.end = min(kEmbeddingChunk + (in_upper == 0 ? 0 : __ffs(in_upper) - 1), N - first);
    const bool is_entry = lane >= chunk.begin && lane < chunk.end;
    const bool ends = is_entry && right != chunk.own.id;  // the last entry is never lane 31's
    chunk.ends = __ballot_sync(kFullWarp, ends);
    chunk.is_left = __any_sync(kFullWarp, is_entry && lane + 1 == chunk.end && !ends);
    return chunk;
}

// Adds up the parts of the id that entered this chunk and ends in it; `last` is the part of this
// chunk. All lanes call it.
template <class T, class G, int W, class Ring>
__device__ __forceinline__ void join_parts(const EmbeddingArrays<T, G>& a,
                                           Ring& ring,
                                           const Chunk& chunk,
                                           int slice,
                                           int column,
                                           const float (&last)[W]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t id = __shfl_sync(kFullWarp, chunk.own.id, 0);
    int first = chunk.index;  // the chunk where the id begins
    for (bool enters = true; enters;) {
        const int begin = (first - lane) * kEmbeddingChunk;
        const bool is_through = begin > 0 && a.ordered[begin - 1].id == id;
        const unsigned ends = ~__ballot_sync(kFullWarp, is_through);
        enters = ends == 0;
        first -= enters ? 32 : __ffs(static_cast<int>(ends)) - 1;
    }
    for (int c = first + lane; c < chunk.index; c += 32) {
        while (ptx::load_acquire(published_flag(a, c, slice)) == 0)
            __nanosleep(100);
    }
    __syncwarp();
    if (column >= a.C) return;
    float sums[W] = {};
    const float* parts = a.s.parts + static_cast<std::int64_t>(first) * a.C + column;
    const auto request = [&](int k, int slot) {
        ring.request(slot, parts + static_cast<std::int64_t>(k) * a.C);
    };
    const auto consume = [&](int, int slot) { add_row<float, W>(sums, ring.take(slot)); };
    stream_rows<Ring::kSlots>(chunk.index - first, request, consume);
#pragma unroll
    for (int i = 0; i < W; ++i)
        sums[i] += last[i];
    G* target = a.dwte + id * a.C + column;
    add_row<G, W>(sums, Pack<G, W>::load(target));
    Pack<G, W>::from(sums).store(target);
}

// One warp a chunk and a slice of columns.
template <class T, class G, int W>
__device__ __forceinline__ void sum_chunk(
    const EmbeddingArrays<T, G>& a, WarpRings<T, G, W>& warp, int index, int slice, int column) {
    if (index * kEmbeddingChunk >= a.N) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Chunk chunk = find_chunk(a.ordered, a.N, index);
    ChunkRings<T, G, W>& rings = warp.chunk;
    float* part = a.s.parts + static_cast<std::int64_t>(index) * a.C + column;
    const bool has_column = column < a.C;
    float sums[W] = {};
    const auto request = [&](int k, int slot) {
        const int entry = chunk.begin + k;
        const std::int64_t position = __shfl_sync(kFullWarp, chunk.own.position, entry);
        const std::int64_t id = __shfl_sync(kFullWarp, chunk.own.id, entry);
        if (!has_column) return;
        rings.dout.request(slot, a.dout + position * a.C + column);
        if (chunk.is_whole(entry)) rings.dwte.request(slot, a.dwte + id * a.C + column);
    };
    const auto consume = [&](int k, int slot) {
        const int entry = chunk.begin + k;
        const std::int64_t id = __shfl_sync(kFullWarp, chunk.own.id, entry);
        if (!has_column) return;
        add_row<T, W>(sums, rings.dout.take(slot));
        if (chunk.is_whole(entry)) {
            add_row<G, W>(sums, rings.dwte.take(slot));
            Pack<G, W>::from(sums).template store<Use::streaming>(a.dwte + id * a.C + column);
        } else if (chunk.is_left && entry + 1 == chunk.end) {
            Pack<float, W>::from(sums).store(part);
        } else {
            return;
        }
#pragma unroll
        for (int i = 0; i < W; ++i)
            sums[i] = 0.0F;
    };
    stream_rows<kEmbeddingChunkSlots>(chunk.end - chunk.begin, request, consume);
    if (chunk.is_left) {
        __threadfence();
        __syncwarp();
        if (lane == 0) ptx::store_release(published_flag(a, index, slice), 1);
    } else if (chunk.is_entered) {
        join_parts<T, G, W>(a, warp.parts, chunk, slice, column, sums);
    }
}

// ----------------------------------------------------------------------------------- positions

// One warp a row t of dwpe and a slice of columns, batches in order. Rows t >= T become 0 or stay.
template <class T, class G, int W, class Ring>
__device__ __forceinline__ void sum_position(const EmbeddingArrays<T, G>& a,
                                             Ring& ring,
                                             int t,
                                             int column) {
    if (t >= a.max_T || (t >= a.T_length && a.accumulate_dwpe) || column >= a.C) return;
    const int B = t < a.T_length ? a.N / a.T_length : 0;
    G* target = a.dwpe + static_cast<std::int64_t>(t) * a.C + column;
    const Pack<G, W> old = a.accumulate_dwpe ? Pack<G, W>::load(target) : Pack<G, W>::zero();
    float sums[W] = {};
    const auto request = [&](int b, int slot) {
        const std::int64_t row = static_cast<std::int64_t>(b) * a.T_length + t;
        ring.request(slot, a.dout + row * a.C + column);
    };
    const auto consume = [&](int, int slot) { add_row<T, W>(sums, ring.take(slot)); };
    stream_rows<Ring::kSlots>(B, request, consume);
    add_row<G, W>(sums, old);
    Pack<G, W>::from(sums).store(target);
}

}  // namespace ingot::cuda
