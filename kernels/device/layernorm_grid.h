// How the CUDA backward pass of LayerNorm is cut into blocks. Host arithmetic on the shape alone:
// every build can size the scratch, and the order of the sums is the same on every card.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

inline constexpr int kLayerNormBackwardRows = 2;  // that a block has in flight at once

// Threads of a block whose threads own `width` neighbouring columns each.
inline int layernorm_backward_threads(std::int64_t C, int width) {
    return static_cast<int>(std::max<std::int64_t>(1, ceil_div<std::int64_t>(C / width, 32)) * 32);
}

// Blocks, and partial sums of a column: 480 threads on each of 132 multiprocessors, which is what
// 128 registers a thread allow.
inline int layernorm_backward_blocks(std::int64_t N, int threads) {
    const std::int64_t blocks = 132LL * std::max(1, 480 / threads);
    return static_cast<int>(std::max<std::int64_t>(
        1, std::min(blocks, ceil_div<std::int64_t>(N, kLayerNormBackwardRows))));
}

// The same for shapes and alignments without packs.
inline int layernorm_backward_any_blocks(std::int64_t N) {
    return static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(132, N / 16)));
}

// (blocks, 2, C) partial sums of whichever path a call takes.
inline std::int64_t layernorm_backward_scratch_bytes(std::int64_t N, std::int64_t C) {
    const int blocks = std::max({layernorm_backward_blocks(N, layernorm_backward_threads(C, 8)),
                                 layernorm_backward_blocks(N, layernorm_backward_threads(C, 4)),
                                 layernorm_backward_any_blocks(N)});
    return static_cast<std::int64_t>(blocks) * 2 * C * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace ingot::cuda
