// Flash attention, backward: sums that several thread blocks add to, one after the other.
//
// A sum lies in memory in the order of the registers it is formed in. Its flag counts the
// additions; a block adds when the count has reached its own turn. The order of turns is fixed, so
// the bits are. All accesses go to the L2 cache.
//
// Waiting and announcing each cost one thread a round trip to that cache. For dQ one warp of the
// block waits and another announces, both a step apart from the additions, with a barrier in
// between.
#pragma once

#include "kernels/attention_flash_backward.cuh"

namespace ingot::flash {

struct Turn {
    int* flag = nullptr;  // null: nobody else adds
    int value = 0;
};

__device__ __forceinline__ void wait_for_turn(const Turn& turn) {
    if (turn.flag == nullptr) return;
    while (ptx::load_acquire(turn.flag) != turn.value) {
    }
}

__device__ __forceinline__ void end_turn(const Turn& turn) {
    if (turn.flag != nullptr) ptx::store_release(turn.flag, turn.value + 1);
}

// What a block walks over. It lies in shared memory and is read where it is used: the loop has no
// registers to keep it in.
template <class Tile>
struct Span {
    int sequence;
    int block;       // of keys
    int first_tile;  // of queries, the diagonal one
    int steps;       // tiles of all heads
    bool is_late;    // from the last tile to the diagonal one, of one head; v.y is ~block

    __device__ __forceinline__ explicit Span(int4 v)
        : sequence(v.x),
          block(Tile::kHasLateHeads ? v.y ^ (v.y >> 31) : v.y),
          first_tile(v.z),
          steps(v.w),
          is_late(Tile::kHasLateHeads && v.y < 0) {}
};

// One tile of queries of one head of the sequence.
struct QueryTile {
    int head;
    int tile;
};

// The tile before or after one, in the order of a block: tiles from the diagonal on, head after
// head; or, late, tiles of one head down to the diagonal.
template <class Tile>
__device__ __forceinline__ QueryTile tile_before(const BackwardParams& p,
                                                 const Span<Tile>& span,
                                                 QueryTile at) {
    if (span.is_late) return {at.head, at.tile + 1};
    return at.tile > span.first_tile ? QueryTile{at.head, at.tile - 1}
                                     : QueryTile{at.head - 1, p.query_tiles - 1};
}

template <class Tile>
__device__ __forceinline__ QueryTile tile_after(const BackwardParams& p,
                                                const Span<Tile>& span,
                                                QueryTile at) {
    if (span.is_late) return {at.head, at.tile - 1};
    return at.tile + 1 < p.query_tiles ? QueryTile{at.head, at.tile + 1}
                                       : QueryTile{at.head + 1, span.first_tile};
}

// Rows r and r + 8 of 8 columns, times scale, to rows of dqkv that lie `distance` values apart.
__device__ __forceinline__ void store_rounded(
    bf16* row, std::int64_t distance, const float (&sum)[4], float scale, int valid_rows) {
    if (valid_rows > 0) {
        *reinterpret_cast<std::uint32_t*>(row) = ptx::pack_bf16(sum[0] * scale, sum[1] * scale);
    }
    if (valid_rows > 8) {
        *reinterpret_cast<std::uint32_t*>(row + distance) =
            ptx::pack_bf16(sum[2] * scale, sum[3] * scale);
    }
}

// A warp's part of dQ of one tile: 32 queries, kDqColumns columns. Key blocks add in descending
// order, from the tile's own down to 0, or, in late heads, in ascending order; the last writes dq.
template <class Tile>
struct QueryGradient {
    static constexpr int kColumns = Tile::kDqColumns;
    static constexpr int kSums = 2 * kColumns / 8;

    float sum[2][kColumns / 8][4];

    // Where the tile's sums and flag lie: heads of all sequences take the slots of the ring in
    // turn.
    __device__ __forceinline__ static std::int64_t place(const BackwardParams& p,
                                                         int sequence,
                                                         QueryTile at) {
        const int slot = (sequence * p.num_heads + at.head) & ((1 << p.dq_slots_log2) - 1);
        return static_cast<std::int64_t>(slot) * p.query_tiles + at.tile;
    }

    __device__ __forceinline__ static int first_block(int tile) {
        return tile / (Tile::kKeys / kQueryRows);
    }

    __device__ __forceinline__ static Turn turn(const BackwardParams& p,
                                                const Span<Tile>& span,
                                                QueryTile at) {
        const int first = first_block(at.tile);
        if (first == 0) return {};
        const int round = (span.sequence * p.num_heads + at.head) >> p.dq_slots_log2;
        const int before = span.is_late ? span.block : first - span.block;
        return {p.dq_flags + place(p, span.sequence, at), round * (first + 1) + before};
    }

    __device__ __forceinline__ static float4* ring(const BackwardParams& p,
                                                   int sequence,
                                                   QueryTile at) {
        const int thread = ptx::recomputed(thread_index());
        return reinterpret_cast<float4*>(p.dq_ring +
                                         place(p, sequence, at) * (kQueryRows * Tile::HS)) +
               thread / kWarpSize * (kSums * kWarpSize) + thread % kWarpSize;
    }

    // Starts from what earlier blocks have added. Call in turn.
    __device__ __forceinline__ void load(const BackwardParams& p,
                                         const Span<Tile>& span,
                                         QueryTile at) {
        const float4* from = ring(p, span.sequence, at);
        const bool is_first = span.block == (span.is_late ? 0 : first_block(at.tile));
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
            const float4 value =
                is_first ? make_float4(0.0F, 0.0F, 0.0F, 0.0F) : __ldcg(from + i * kWarpSize);
            float(&four)[4] = sum[i / (kColumns / 8)][i % (kColumns / 8)];
            four[0] = value.x;
            four[1] = value.y;
            four[2] = value.z;
            four[3] = value.w;
        }
    }

    // Adds dS K. Keys after the last of the warp's queries have no part in it, and dS^T may not
    // hold them.
    __device__ __forceinline__ void multiply(std::uint32_t ds,
                                             std::uint32_t k_tile,
                                             int block,
                                             int tile) {
        constexpr int HS = Tile::HS;
        const int thread = ptx::recomputed(thread_index());
        const int lane = thread % kWarpSize;
        const int first_row = thread / kWarpSize % 2 * 32;
        const int first_column = thread / kWarpSize / 2 * kColumns;
        const int seen = tile * kQueryRows + first_row + 32 - block * Tile::kKeys;
        if (seen >= Tile::kKeys) {
#pragma unroll
            for (int k = 0; k < Tile::kKeys; k += 16) {
                multiply_query_gradient<HS, kColumns>(sum, ds + k * kQueryRows * 2, first_row,
                                                      k_tile + k * HS * 2, first_column, lane);
            }
        } else {
#pragma unroll 1
            for (int k = 0; k < seen; k += 16) {
                multiply_query_gradient<HS, kColumns>(sum, ds + k * kQueryRows * 2, first_row,
                                                      k_tile + k * HS * 2, first_column, lane);
            }
        }
    }

    // For the next block, or, from the last one, dq.
    __device__ __forceinline__ void store(const BackwardParams& p,
                                          const Span<Tile>& span,
                                          QueryTile at) const {
        if (span.block != (span.is_late ? first_block(at.tile) : 0)) {
            float4* to = ring(p, span.sequence, at);
#pragma unroll
            for (int i = 0; i < kSums; ++i) {
                const float(&four)[4] = sum[i / (kColumns / 8)][i % (kColumns / 8)];
                __stcg(to + i * kWarpSize, make_float4(four[0], four[1], four[2], four[3]));
            }
            return;
        }
        const int lane = lane_index();
        const std::int64_t stride =
            static_cast<std::int64_t>(p.num_heads + 2 * p.num_kv_heads) * Tile::HS;
        const int row = at.tile * kQueryRows + warp_index() % 2 * 32 + lane / 4;
        bf16* out = p.dqkv + (static_cast<std::int64_t>(span.sequence) * p.T + row) * stride +
                    at.head * Tile::HS + warp_index() / 2 * kColumns + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
            const int m = i / (kColumns / 8);
            const int n = i % (kColumns / 8);
            store_rounded(out + 16 * m * stride + 8 * n, 8 * stride, sum[m][n], p.scale,
                          p.T - row - 16 * m);
        }
    }
};

// Adds a warp's dk or dv to those of the chunks before; the last chunk keeps the sum in registers.
template <class Tile>
__device__ __forceinline__ void add_chunk(float (&sum)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
                                          float4* ring,
                                          bool is_first,
                                          bool is_last) {
    constexpr int kColumns = Tile::kColumns / 8;
#pragma unroll
    for (int m = 0; m < Tile::kKeyAtoms; ++m) {
        float4 before[kColumns];  // all loads are under way before the first is used
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            before[n] = is_first ? make_float4(0.0F, 0.0F, 0.0F, 0.0F)
                                 : __ldcg(ring + (m * kColumns + n) * kWarpSize);
        }
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            sum[m][n][0] += before[n].x;
            sum[m][n][1] += before[n].y;
            sum[m][n][2] += before[n].z;
            sum[m][n][3] += before[n].w;
            if (!is_last) {
                __stcg(ring + (m * kColumns + n) * kWarpSize,
                       make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]));
            }
        }
    }
}

}  // namespace ingot::flash
