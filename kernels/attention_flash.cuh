// What the forward and backward flash attention kernels share: tiles in shared memory and the
// operands of mma.m16n8k16 taken from them.
//
// A tile is R rows of W bf16 values (W = 64 or 128). A row is cut into chunks of 16 bytes, and
// chunk c of row r lies at position c ^ (r mod 8): the eight rows of an 8x8 matrix, read at one
// chunk, then lie in eight different groups of banks.
//
// All operands are read as 16 x 16 blocks, four 8x8 quarters in one instruction. The registers that
// come back have to be neighbours in the order the product takes them, else each product costs
// moves; so there are two orders of the quarters (row half, chunk half):
//   rows first     (0, 0) (1, 0) (0, 1) (1, 1)    lane l addresses row l mod 16, chunk l / 16
//   columns first  (0, 0) (0, 1) (1, 0) (1, 1)    row l mod 8 + 8 (l / 16), chunk l / 8 mod 2
// With them the four registers are
//   block[m][k] as operand A                        plain, rows first
//   block[k][m] as operand A                        transposed, columns first
//   block[n][k] as operands B of n < 8, n >= 8      plain, columns first
//   block[k][n] as operands B of n < 8, n >= 8      transposed, rows first
#pragma once

#include <cstdint>

#include "engine/core/dtype.h"
#include "kernels/device/ptx.cuh"

namespace ingot::flash {

constexpr int kWarpSize = 32;
constexpr float kLog2E = 1.44269504088896340736F;
constexpr float kLn2 = 0.69314718055994530942F;

__device__ __forceinline__ int thread_index() {
    return static_cast<int>(threadIdx.x);
}

__device__ __forceinline__ int lane_index() {
    return thread_index() % kWarpSize;
}

__device__ __forceinline__ int warp_index() {
    return thread_index() / kWarpSize;
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of kWidth columns.
template <int kWidth>
__device__ __forceinline__ std::uint32_t chunk_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row * kWidth * 2 + ((chunk ^ (row & 7)) << 4));
}

// The lane's address of the 16 x 16 block at (row, column) of a tile; both multiples of 16. Written
// so that constants fold: the lane's part is `lane_base`, from one of the two functions below.
template <int kWidth>
__device__ __forceinline__ std::uint32_t block_address(std::uint32_t tile,
                                                       std::uint32_t lane_base,
                                                       int row,
                                                       int column) {
    const std::uint32_t low = static_cast<std::uint32_t>(column * 2) & 0x7fU;
    const std::uint32_t high = static_cast<std::uint32_t>(column * 2) & ~0x7fU;
    return tile + static_cast<std::uint32_t>(row * kWidth * 2) + high + (lane_base ^ low);
}

template <int kWidth>
__device__ __forceinline__ std::uint32_t rows_first(int lane) {
    return chunk_offset<kWidth>(lane % 16, lane / 16);
}

template <int kWidth>
__device__ __forceinline__ std::uint32_t columns_first(int lane) {
    return chunk_offset<kWidth>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

// Starts the copy of kRows x kWidth values from rows of `stride` values; rows from valid_rows on
// become zeros and are not read.
template <int kWidth, int kRows, int kThreads>
__device__ __forceinline__ void load_tile_async(std::uint32_t tile,
                                                const bf16* src,
                                                std::int64_t stride,
                                                int valid_rows) {
    constexpr int kChunks = kWidth / 8;
    constexpr int kRowStep = kThreads / kChunks;
    static_assert(kRowStep % 8 == 0 && kRows % kRowStep == 0, "a thread keeps its swizzled column");
    const int thread = ptx::recomputed(thread_index());
    const int row = thread / kChunks;
    const int chunk = thread % kChunks;
    const std::uint32_t dst = tile + chunk_offset<kWidth>(row, chunk);
    const bf16* from = src + row * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
        ptx::copy_async_16(dst + static_cast<std::uint32_t>(i * kRowStep * kWidth * 2), from,
                           row + i * kRowStep < valid_rows);
        from += kRowStep * stride;
    }
}

// Writes rows of a tile in shared memory to global memory: kRows rows from `tile` on, by one warp,
// 16 bytes a lane. Rows from valid_rows on are left out.
template <int kWidth, int kRows>
__device__ __forceinline__ void store_rows_of_warp(bf16* dst,
                                                   std::int64_t stride,
                                                   int valid_rows,
                                                   const unsigned char* tile) {
    constexpr int kChunks = kWidth / 8;
    constexpr int kRowStep = kWarpSize / kChunks;
    const int lane = lane_index();
    const int row = lane / kChunks;
    const int chunk = lane % kChunks;
    bf16* to = dst + row * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
        if (row + i * kRowStep < valid_rows) {
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
                tile + chunk_offset<kWidth>(row + i * kRowStep, chunk));
        }
        to += kRowStep * stride;
    }
}

// One 16 x 8 sum times two factors (of row r and row r + 8), rounded, to a tile at (row, 8 column).
template <int kWidth>
__device__ __forceinline__ void store_sum(
    std::uint32_t tile, int row, int column, const float (&sum)[4], float first, float second) {
    const int lane = lane_index();
    const std::uint32_t word = static_cast<std::uint32_t>(lane % 4 * 4);
    ptx::store_shared_32(tile + chunk_offset<kWidth>(row + lane / 4, column) + word,
                         ptx::pack_bf16(sum[0] * first, sum[1] * first));
    ptx::store_shared_32(tile + chunk_offset<kWidth>(row + lane / 4 + 8, column) + word,
                         ptx::pack_bf16(sum[2] * second, sum[3] * second));
}

// The sums of two neighbouring 16 x 8 products, rounded, as operand A of the next product.
__device__ __forceinline__ void pack_operand(std::uint32_t (&a)[4],
                                             const float (&left)[4],
                                             const float (&right)[4]) {
    a[0] = ptx::pack_bf16(left[0], left[1]);
    a[1] = ptx::pack_bf16(left[2], left[3]);
    a[2] = ptx::pack_bf16(right[0], right[1]);
    a[3] = ptx::pack_bf16(right[2], right[3]);
}

}  // namespace ingot::flash
