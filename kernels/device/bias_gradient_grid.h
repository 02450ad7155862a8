// How the CUDA bias gradient is cut into blocks. Host arithmetic on the shape alone: every build
// can size the scratch, and the order of the sums is the same on every card.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

inline constexpr int kBiasGradientRowLanes = 16;  // warps of a block, each on every 16th row
inline constexpr int kBiasGradientUnroll = 4;     // rows that a thread has in flight
inline constexpr std::int64_t kBiasGradientBlocks = 2 * 132;  // one wave, 2 a multiprocessor
inline constexpr std::int64_t kBiasGradientColumns = 32 * 8;  // of a block: 16-byte packs of bf16

// Chunks of rows, each summed by one block for each group of columns.
inline int bias_gradient_chunks(std::int64_t N, std::int64_t OC) {
    const std::int64_t column_blocks = ceil_div(OC, kBiasGradientColumns);
    const std::int64_t chunks = std::max<std::int64_t>(1, kBiasGradientBlocks / column_blocks);
    const std::int64_t rows = kBiasGradientUnroll * kBiasGradientRowLanes;
    return static_cast<int>(std::max<std::int64_t>(1, std::min(chunks, ceil_div(N, rows))));
}

// (chunks, OC) partial sums.
inline std::int64_t bias_gradient_scratch_bytes(std::int64_t N, std::int64_t OC) {
    return bias_gradient_chunks(N, OC) * OC * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace ingot::cuda
