// How the CUDA backward pass of the embedding is cut into blocks, and what lies in its scratch.
// Host arithmetic on the shape alone, so that every build can size the scratch; the map from blocks
// to work is what the kernel itself uses.
#pragma once

#include <cstdint>

#include "engine/core/host_device.h"
#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

inline constexpr int kEmbeddingWarps = 8;   // of a block
inline constexpr int kEmbeddingChunk = 32;  // entries of the ordered list that one warp adds

// One launch adds dout into both tables. It walks over slices of columns, and within a slice first
// over positions (for dwpe), then over the ordered list (for dwte): the second finds the slice's
// part of dout in L2, so that dout is read from memory once. Blocks start in the order of their
// index on all cards; no result depends on it.
struct EmbeddingGrid {
    int slices;           // groups of 32 packs of columns
    int position_blocks;  // of a slice, a warp for each row of dwpe; 0 without learned positions
    int chunk_blocks;     // of a slice, a warp for each chunk of the ordered list

    INGOT_HOST_DEVICE std::int64_t num_blocks() const {
        return static_cast<std::int64_t>(slices) * (position_blocks + chunk_blocks);
    }
};

// max_T: rows of dwpe, 0 without; width: neighbouring columns of a thread.
inline EmbeddingGrid embedding_grid(std::int64_t N,
                                    std::int64_t C,
                                    std::int64_t max_T,
                                    std::int64_t width) {
    const std::int64_t chunks_of_block = kEmbeddingChunk * kEmbeddingWarps;
    return {static_cast<int>(ceil_div<std::int64_t>(C, 32 * width)),
            static_cast<int>(ceil_div<std::int64_t>(max_T, kEmbeddingWarps)),
            static_cast<int>(ceil_div<std::int64_t>(N, chunks_of_block))};
}

struct EmbeddingWork {
    int slice;
    bool is_position;
    int item;  // row of dwpe, or chunk; may lie past the end
};

INGOT_HOST_DEVICE inline EmbeddingWork embedding_work(const EmbeddingGrid& grid,
                                                      int block,
                                                      int warp) {
    const int blocks_of_slice = grid.position_blocks + grid.chunk_blocks;
    const int slice = block / blocks_of_slice;
    const int rest = block - slice * blocks_of_slice;
    const bool is_position = rest < grid.position_blocks;
    const int first = is_position ? rest : rest - grid.position_blocks;
    return {slice, is_position, first * kEmbeddingWarps + warp};
}

struct EmbeddingScratch {
    int* counts;   // (Vp) how often each id occurs
    int* starts;   // (Vp) where its list begins
    int* slots;    // (N) place of a position in its id's unordered list
    int* list;     // (N) positions by id
    int* ordered;  // (N) positions by (id, position)
    float* heads;  // (chunks, C) sum of the entries of the id that entered the chunk from the left
    float* tails;  // (chunks, C) sum of the entries of the id that leaves it to the right
};

// Lays the parts out behind `base` and returns the bytes they take; base may be null to measure.
inline std::int64_t lay_out_embedding_scratch(
    char* base, std::int64_t N, std::int64_t Vp, std::int64_t C, EmbeddingScratch* s) {
    constexpr std::int64_t kAlignBytes = 256;
    std::int64_t offset = 0;
    const auto take = [&](std::int64_t elements) {
        void* place = base == nullptr ? nullptr : base + offset;
        offset += ceil_div<std::int64_t>(elements * 4, kAlignBytes) * kAlignBytes;
        return place;
    };
    const std::int64_t chunks = ceil_div<std::int64_t>(N, kEmbeddingChunk);
    s->counts = static_cast<int*>(take(Vp));
    s->starts = static_cast<int*>(take(Vp));
    s->slots = static_cast<int*>(take(N));
    s->list = static_cast<int*>(take(N));
    s->ordered = static_cast<int*>(take(N));
    s->heads = static_cast<float*>(take(chunks * C));
    s->tails = static_cast<float*>(take(chunks * C));
    return offset;
}

inline std::int64_t embedding_backward_scratch_bytes(std::int64_t num_tokens,
                                                     std::int64_t Vp,
                                                     std::int64_t C) {
    EmbeddingScratch unused;
    return lay_out_embedding_scratch(nullptr, num_tokens, Vp, C, &unused);
}

}  // namespace ingot::cuda
