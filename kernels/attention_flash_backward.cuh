// Flash attention, backward: tiles, parameters and the products of one step.
//
// The scores are formed transposed, S^T = K Q^T (keys x queries), a warp owning 16 * kKeyAtoms
// keys: P^T and dS^T then are, in the registers they were computed in, operand A of
//   dV += P^T dO       dK += dS^T Q
// and only dS passes through shared memory, for dQ = dS K, whose sum runs over the keys of all
// warps.
#pragma once

#include "kernels/attention_flash.cuh"
#include "kernels/attention_flash_plan.h"

namespace ingot::flash {

struct BackwardParams {
    bf16* dqkv;
    const bf16* qkv;
    const bf16* dout;
    const float2* stats;  // (B, NH, T): lse * log2 e, dout . out
    float* dq_ring;       // (dq_slots, query_tiles, 64 * HS) sums in the order of the registers
    float* dkv_ring;      // (dkv_slots, key_blocks, 2 * kKeys * HS)
    int* ticket;          // counts the blocks that have started
    int* dq_flags;        // (dq_slots, query_tiles)
    int* dkv_flags;       // (dkv_slots, key_blocks, warps)
    int T;
    int num_heads;
    int num_kv_heads;
    int query_tiles;
    int key_blocks;
    int heads_per_block;  // query heads of a group that one block handles, one after the other
    int chunks;           // blocks that share the keys of a group; their dk, dv add up in order
    int late_heads;       // the last heads of all, in the other order
    int early_blocks;     // blocks of the heads before them
    int dq_slots_log2;
    int dkv_slots;
    int lag;  // dQ of a tile is formed 0 or 1 steps after its dS
    float scale;
    float scale_log2;
};

// kSharing warps own the same keys: each forms the scores of its part of the queries and adds to
// its part of the columns of dK and dV. With two, 32 keys a warp instead of 16 fit the registers,
// and a warp reads 136 matrices a step from shared memory for 320 products instead of 176.
template <int kHeadSize, int kAtoms, int kNumWarps, int kSharing = 1>
struct BackwardTile {
    static constexpr int HS = kHeadSize;
    static constexpr int kKeyAtoms = kAtoms;  // of 16 keys, in a warp
    static constexpr int kWarps = kNumWarps;
    static constexpr int kShare = kSharing;
    static constexpr bool kHasLateHeads = has_late_heads(HS);
    static constexpr int kStages =  // tiles of queries in shared memory
        HS == 128 && kWarps == 4 ? 1 : 2;
    static constexpr int kThreads = kWarps * kWarpSize;
    static constexpr int kWarpKeys = 16 * kKeyAtoms;
    static constexpr int kKeys = kWarpKeys * kWarps / kShare;
    static constexpr int kColumns = HS / kShare;  // of dK and dV, in a warp
    static constexpr int kSubRows =
        kQueryRows / kKeyAtoms;                         // queries whose scores are in registers
    static constexpr int kDqColumns = 2 * HS / kWarps;  // a warp's part of dQ is 32 rows of these
    static constexpr int kSpanBytes = 128;
    static constexpr int kKeyBytes = kKeys * HS * 2;
    static constexpr int kQueryBytes = kQueryRows * HS * 2;
    static constexpr int kStageBytes = 2 * kQueryBytes + kQueryRows * 8;  // Q, dO, stats
    static constexpr int kGradientBytes = kKeys * kQueryRows * 2;         // dS^T
    static constexpr int shared_bytes(int lag) {
        return kSpanBytes + 2 * kKeyBytes + (kShare + lag) * kGradientBytes + kStages * kStageBytes;
    }
    static_assert(kShare == 1 || (kShare == 2 && kKeyAtoms == 2), "a pair of warps takes halves");
    static_assert(kKeys % kQueryRows == 0, "a block of keys starts at a tile of queries");
};

// product (16 kAtoms x 8 kColumns) = left right^T over HS columns; left and right are rows of
// tiles.
template <int HS, int kAtoms, int kColumns>
__device__ __forceinline__ void multiply_transposed(float (&product)[kAtoms][kColumns][4],
                                                    std::uint32_t left,
                                                    std::uint32_t right) {
    const int lane = ptx::recomputed(lane_index());
    const std::uint32_t a_base = rows_first<HS>(lane);
    const std::uint32_t b_base = columns_first<HS>(lane);
#pragma unroll
    for (int m = 0; m < kAtoms; ++m) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            product[m][n][0] = product[m][n][1] = product[m][n][2] = product[m][n][3] = 0.0F;
        }
    }
#pragma unroll
    for (int k = 0; k < HS / 16; ++k) {
        std::uint32_t a[kAtoms][4];
#pragma unroll
        for (int m = 0; m < kAtoms; ++m)
            ptx::load_matrix_x4(a[m], block_address<HS>(left, a_base, 16 * m, 16 * k));
#pragma unroll
        for (int n = 0; n < kColumns / 2; ++n) {
            std::uint32_t b[4];
            ptx::load_matrix_x4(b, block_address<HS>(right, b_base, 16 * n, 16 * k));
#pragma unroll
            for (int m = 0; m < kAtoms; ++m) {
                ptx::multiply_add(product[m][2 * n], a[m], b[0], b[1]);
                ptx::multiply_add(product[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// sum (16 kAtoms x 8 kSums) += left right, where left (16 kAtoms x 16 kBlocks) is what
// multiply_transposed left in registers, and right the tile with one row a column of it, from the
// first column of the sum on.
template <int HS, int kAtoms, int kSums, int kBlocks>
__device__ __forceinline__ void multiply_accumulate(float (&sum)[kAtoms][kSums][4],
                                                    const std::uint32_t (&left)[kAtoms][kBlocks][4],
                                                    std::uint32_t right) {
    const std::uint32_t base = rows_first<HS>(ptx::recomputed(lane_index()));
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
#pragma unroll
        for (int n = 0; n < kSums / 2; ++n) {
            std::uint32_t b[4];
            ptx::load_matrix_x4_transposed(b, block_address<HS>(right, base, 16 * k, 16 * n));
#pragma unroll
            for (int m = 0; m < kAtoms; ++m) {
                ptx::multiply_add(sum[m][2 * n], left[m][k], b[0], b[1]);
                ptx::multiply_add(sum[m][2 * n + 1], left[m][k], b[2], b[3]);
            }
        }
    }
}

// The same where left is a block of another warp, in a tile of rows of kQueryRows.
template <int HS, int kAtoms, int kSums, int kBlocks>
__device__ __forceinline__ void multiply_accumulate_shared(float (&sum)[kAtoms][kSums][4],
                                                           std::uint32_t left,
                                                           int left_column,
                                                           std::uint32_t right) {
    const std::uint32_t a_base = rows_first<kQueryRows>(ptx::recomputed(lane_index()));
    std::uint32_t a[kAtoms][kBlocks][4];
#pragma unroll
    for (int m = 0; m < kAtoms; ++m) {
#pragma unroll
        for (int k = 0; k < kBlocks; ++k) {
            ptx::load_matrix_x4(
                a[m][k], block_address<kQueryRows>(left, a_base, 16 * m, left_column + 16 * k));
        }
    }
    multiply_accumulate<HS>(sum, a, right);
}

// 16 keys of dQ: sum (32 x kColumns) += dS K. ds is dS^T from those keys' rows and the warp's first
// query on, k_rows the same rows of K; first_column is the warp's part of HS.
template <int HS, int kColumns>
__device__ __forceinline__ void multiply_query_gradient(float (&sum)[2][kColumns / 8][4],
                                                        std::uint32_t ds,
                                                        int first_query,
                                                        std::uint32_t k_rows,
                                                        int first_column,
                                                        int lane) {
    std::uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        ptx::load_matrix_x4_transposed(
            a[m], block_address<kQueryRows>(ds, columns_first<kQueryRows>(lane), 0,
                                            first_query + 16 * m));
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
        std::uint32_t b[4];
        ptx::load_matrix_x4_transposed(
            b, block_address<HS>(k_rows, rows_first<HS>(lane), 0, first_column + 16 * n));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            ptx::multiply_add(sum[m][2 * n], a[m], b[0], b[1]);
            ptx::multiply_add(sum[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

// Turns scores into P^T and dP^T into dS^T, in place. stats holds (lse * log2 e, delta) of the
// queries in columns; an element is masked when its query comes before its key: with lead = first
// query - first key, when column + lead < row.
template <int kAtoms, int kColumns>
__device__ __forceinline__ void softmax_gradient(float (&s)[kAtoms][kColumns][4],
                                                 float (&dp)[kAtoms][kColumns][4],
                                                 std::uint32_t stats,
                                                 float scale_log2,
                                                 int lead) {
    const int lane = ptx::recomputed(lane_index());
    if (lead < 16 * kAtoms - 1) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int m = 0; m < kAtoms; ++m) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int column = 8 * n + 2 * (lane % 4) + e % 2;
                    if (column + lead < 16 * m + lane / 4 + 8 * (e / 2)) s[m][n][e] = -INFINITY;
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        const int column = 8 * n + 2 * (lane % 4);
        const float4 two = ptx::load_shared_float4(stats + static_cast<std::uint32_t>(column * 8));
#pragma unroll
        for (int m = 0; m < kAtoms; ++m) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float lse = e % 2 == 0 ? two.x : two.z;
                const float delta = e % 2 == 0 ? two.y : two.w;
                s[m][n][e] = ptx::exp2_approx(fmaf(s[m][n][e], scale_log2, -lse));
                dp[m][n][e] = s[m][n][e] * (dp[m][n][e] - delta);
            }
        }
    }
}

}  // namespace ingot::flash
