// How the CUDA backward pass of the embedding is cut into blocks, and what lies in its scratch.
// Host arithmetic on the shape alone, so that every build can size the scratch; the map from blocks
// to work is what the kernel itself uses.
#pragma once

#include <cstdint>

#include "engine/core/host_device.h"
#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

inline constexpr int kEmbeddingWarps = 4;           // of a block
inline constexpr int kEmbeddingChunk = 16;          // entries of the ordered list, on average
inline constexpr int kEmbeddingChunkSlots = 6;      // rows of a warp in flight, and one in use,
inline constexpr int kEmbeddingPositionSlots = 12;  // that lie in shared memory

struct EmbeddingWork {
    bool is_position;
    int slice;  // of columns
    int item;   // group of rows of dwpe, or of chunks; a group is a block's
};

// One launch adds dout into both tables. It walks over slices of columns, and within a slice first
// over positions (for dwpe), then over the ordered list (for dwte): the second finds the slice's
// part of dout in L2, so that dout is read from memory once. A block waits only for work of a lower
// number, and blocks number their work as they start: what is waited for has started.
struct EmbeddingGrid {
    int slices;           // of columns
    int position_blocks;  // of a slice, a warp for each row of dwpe; 0 without learned positions
    int chunk_blocks;     // of a slice, a warp for each chunk of the ordered list

    INGOT_HOST_DEVICE std::int64_t num_blocks() const {
        return static_cast<std::int64_t>(slices) * (position_blocks + chunk_blocks);
    }

    INGOT_HOST_DEVICE EmbeddingWork work(int number) const {
        const int blocks_of_slice = position_blocks + chunk_blocks;
        const int slice = number / blocks_of_slice;
        const int item = number - slice * blocks_of_slice;
        if (item < position_blocks) return {true, slice, item};
        return {false, slice, item - position_blocks};
    }
};

// max_T: rows of dwpe, 0 without; width: neighbouring columns of a pack.
inline EmbeddingGrid embedding_grid(std::int64_t N,
                                    std::int64_t C,
                                    std::int64_t max_T,
                                    std::int64_t width) {
    const std::int64_t chunks_of_block = kEmbeddingChunk * kEmbeddingWarps;
    return {static_cast<int>(ceil_div<std::int64_t>(C, 32 * width)),
            static_cast<int>(ceil_div<std::int64_t>(max_T, kEmbeddingWarps)),
            static_cast<int>(ceil_div<std::int64_t>(N, chunks_of_block))};
}

struct EmbeddingScratch {
    int* started;    // (1) blocks that have begun; before `published`, cleared with it
    int* published;  // (chunks, slices) 1: the chunk's row of parts is there
    float* parts;    // (chunks, C) sum of an id's entries in a chunk, where it has others elsewhere
};

// Lays the parts out behind `base` and returns the bytes they take; base may be null to measure.
inline std::int64_t lay_out_embedding_scratch(char* base,
                                              std::int64_t N,
                                              std::int64_t C,
                                              EmbeddingScratch* s) {
    constexpr std::int64_t kAlignBytes = 256;
    std::int64_t offset = 0;
    const auto take = [&](std::int64_t elements) {
        void* place = base == nullptr ? nullptr : base + offset;
        offset += ceil_div<std::int64_t>(elements * 4, kAlignBytes) * kAlignBytes;
        return place;
    };
    const std::int64_t chunks = ceil_div<std::int64_t>(N, kEmbeddingChunk);
    const std::int64_t slices = ceil_div<std::int64_t>(C, 32);  // at least those of any width
    s->started = static_cast<int*>(take(1 + chunks * slices));
    s->published = base == nullptr ? nullptr : s->started + 1;
    s->parts = static_cast<float*>(take(chunks * C));
    return offset;
}

inline std::int64_t embedding_backward_scratch_bytes(std::int64_t num_tokens, std::int64_t C) {
    EmbeddingScratch unused;
    return lay_out_embedding_scratch(nullptr, num_tokens, C, &unused);
}

}  // namespace ingot::cuda
