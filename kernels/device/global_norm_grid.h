// How the CUDA sum of squares is cut into blocks. Host arithmetic on the size alone: every build
// can size the scratch, and the order of the sums is the same on every card.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

inline constexpr std::int64_t kSquaredNormMaxBlocks = 4 * 132;    // one wave, 4 a multiprocessor
inline constexpr std::int64_t kSquaredNormBlockElements = 16384;  // fewest elements worth a block

inline int squared_norm_blocks(std::int64_t numel) {
    const std::int64_t blocks = ceil_div(numel, kSquaredNormBlockElements);
    return static_cast<int>(std::max<std::int64_t>(1, std::min(kSquaredNormMaxBlocks, blocks)));
}

// A partial sum a block.
inline std::int64_t squared_norm_scratch_bytes(std::int64_t numel) {
    return squared_norm_blocks(numel) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace ingot::cuda
