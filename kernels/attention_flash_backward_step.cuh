// Flash attention, backward: one step of a block, for the keys of one warp.
#pragma once

#include "kernels/attention_flash_backward.cuh"
#include "kernels/attention_flash_backward_sums.cuh"

namespace ingot::flash {

// Shared memory of a block.
template <class Tile>
struct Memory {
    std::uint32_t k, v, gradients, p, stages;  // p: P^T, where warps share keys

    __device__ __forceinline__ Memory(std::uint32_t begin, int lag)
        : k(begin),
          v(k + Tile::kKeyBytes),
          gradients(v + Tile::kKeyBytes),
          p(gradients + (1 + lag) * Tile::kGradientBytes),
          stages(p + (Tile::kShare - 1) * Tile::kGradientBytes) {}
    __device__ __forceinline__ std::uint32_t ds(int i) const {
        return gradients + static_cast<std::uint32_t>(i * Tile::kGradientBytes);
    }
    __device__ __forceinline__ std::uint32_t q(int i) const {
        return stages + static_cast<std::uint32_t>(i * Tile::kStageBytes);
    }
    __device__ __forceinline__ std::uint32_t dout(int i) const { return q(i) + Tile::kQueryBytes; }
    __device__ __forceinline__ std::uint32_t stats(int i) const {
        return q(i) + 2 * Tile::kQueryBytes;
    }
};

template <class Tile>
__device__ __forceinline__ void load_queries(
    const BackwardParams& p, const Memory<Tile>& memory, int stage, int sequence, QueryTile at) {
    constexpr int HS = Tile::HS;
    const int first = at.tile * kQueryRows;
    const int valid = p.T - first;
    const std::int64_t row = static_cast<std::int64_t>(sequence) * p.T + first;
    const std::int64_t stride = static_cast<std::int64_t>(p.num_heads + 2 * p.num_kv_heads) * HS;
    const std::int64_t out_stride = static_cast<std::int64_t>(p.num_heads) * HS;
    load_tile_async<HS, kQueryRows, Tile::kThreads>(
        memory.q(stage), p.qkv + row * stride + at.head * HS, stride, valid);
    load_tile_async<HS, kQueryRows, Tile::kThreads>(
        memory.dout(stage), p.dout + row * out_stride + at.head * HS, out_stride, valid);
    const int i = ptx::recomputed(thread_index());
    if (i < kQueryRows) {
        const float2* stats =
            p.stats + (static_cast<std::int64_t>(sequence) * p.num_heads + at.head) * p.T + first;
        ptx::copy_async_8(memory.stats(stage) + static_cast<std::uint32_t>(i * 8),
                          stats + (i < valid ? i : 0), i < valid);
    }
    ptx::copy_async_commit();
}

// The keys of a block that a warp owns begin here.
template <class Tile>
__device__ __forceinline__ int first_key_of_warp() {
    const int warp = Tile::kShare == 1 ? warp_index() : ptx::recomputed(warp_index());
    return warp / Tile::kShare * Tile::kWarpKeys;
}

// P^T and dS^T of a warp's keys as operands; dS^T also to shared memory, and P^T where the warp
// shares its keys.
template <class Tile>
__device__ __forceinline__ void pack_gradients(
    std::uint32_t (&p)[Tile::kKeyAtoms][Tile::kSubRows / 16][4],
    std::uint32_t (&ds)[Tile::kKeyAtoms][Tile::kSubRows / 16][4],
    const float (&s)[Tile::kKeyAtoms][Tile::kSubRows / 8][4],
    const float (&dp)[Tile::kKeyAtoms][Tile::kSubRows / 8][4],
    std::uint32_t ds_tile,
    std::uint32_t p_tile,
    int first_query) {
    const int lane = ptx::recomputed(lane_index());
    const int first_key = ptx::recomputed(first_key_of_warp<Tile>());
#pragma unroll
    for (int m = 0; m < Tile::kKeyAtoms; ++m) {
#pragma unroll
        for (int n = 0; n < Tile::kSubRows / 16; ++n) {
            pack_operand(p[m][n], s[m][2 * n], s[m][2 * n + 1]);
            pack_operand(ds[m][n], dp[m][2 * n], dp[m][2 * n + 1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const std::uint32_t at =
                    chunk_offset<kQueryRows>(first_key + 16 * m + 8 * (e % 2) + lane / 4,
                                             first_query / 8 + 2 * n + e / 2) +
                    static_cast<std::uint32_t>(lane % 4 * 4);
                ptx::store_shared_32(ds_tile + at, ds[m][n][e]);
                if constexpr (Tile::kShare > 1) ptx::store_shared_32(p_tile + at, p[m][n][e]);
            }
        }
    }
}

// The step of a warp's own keys: dv, dk and the warp's rows of dS^T. lead = first query of the tile
// - first key of the warp. `between` is called once, where registers are free and products cover
// what it waits for.
template <class Tile, class Between>
__device__ __forceinline__ void add_key_gradients(
    float (&dk)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
    float (&dv)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
    const Memory<Tile>& memory,
    int stage,
    std::uint32_t ds_tile,
    int lead,
    float scale_log2,
    const Between& between) {
    constexpr int HS = Tile::HS;
    constexpr int kColumns = Tile::kSubRows / 8;
    const std::uint32_t key_offset =
        static_cast<std::uint32_t>(warp_index() * Tile::kWarpKeys * HS * 2);
    const std::uint32_t q = memory.q(stage);
    const std::uint32_t dout = memory.dout(stage);
    std::uint32_t ds[Tile::kKeyAtoms][kColumns / 2][4];
    bool any = false;
#pragma unroll
    for (int begin = 0; begin < kQueryRows; begin += Tile::kSubRows) {
        const std::uint32_t offset = static_cast<std::uint32_t>(begin * HS * 2);
        any = lead + begin + Tile::kSubRows > 0;
        if (!any) continue;  // every query comes before every key
        float s[Tile::kKeyAtoms][kColumns][4];
        float dp[Tile::kKeyAtoms][kColumns][4];
        multiply_transposed<HS>(s, memory.k + key_offset, q + offset);
        multiply_transposed<HS>(dp, memory.v + key_offset, dout + offset);
        softmax_gradient(s, dp, memory.stats(stage) + static_cast<std::uint32_t>(begin * 8),
                         scale_log2, lead + begin);
        std::uint32_t p[Tile::kKeyAtoms][kColumns / 2][4];
        pack_gradients<Tile>(p, ds, s, dp, ds_tile, 0, begin);
        multiply_accumulate<HS>(dv, p, dout + offset);
        if (begin + Tile::kSubRows < kQueryRows) multiply_accumulate<HS>(dk, ds, q + offset);
    }
    between();
    if (any) {
        multiply_accumulate<HS>(
            dk, ds, q + static_cast<std::uint32_t>((kQueryRows - Tile::kSubRows) * HS * 2));
    }
}

// The same for two warps that share their keys. Each forms P^T and dS^T of its half of the queries,
// and adds to its half of the columns first what it holds itself, then what the other stored.
template <class Tile, class Between>
__device__ __forceinline__ void add_key_gradients_of_pair(
    float (&dk)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
    float (&dv)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
    const Memory<Tile>& memory,
    int stage,
    std::uint32_t ds_tile,
    int lead,
    float scale_log2,
    const Between& between) {
    constexpr int HS = Tile::HS;
    constexpr int kRows = Tile::kSubRows;
    constexpr int kBlocks = kRows / 16;
    constexpr int kSums = Tile::kColumns / 8;
    const int half = ptx::recomputed(warp_index()) % 2;
    const int mine = half * kRows;
    const int others = kRows - mine;
    const std::uint32_t columns = static_cast<std::uint32_t>(half * Tile::kColumns * 2);
    const std::uint32_t q = memory.q(stage);
    const std::uint32_t dout = memory.dout(stage);
    if (lead + mine + kRows > 0) {
        const std::uint32_t keys = static_cast<std::uint32_t>(first_key_of_warp<Tile>() * HS * 2);
        const std::uint32_t rows = static_cast<std::uint32_t>(mine * HS * 2);
        float s[Tile::kKeyAtoms][kRows / 8][4];
        float dp[Tile::kKeyAtoms][kRows / 8][4];
        multiply_transposed<HS>(s, memory.k + keys, q + rows);
        multiply_transposed<HS>(dp, memory.v + keys, dout + rows);
        softmax_gradient(s, dp, memory.stats(stage) + static_cast<std::uint32_t>(mine * 8),
                         scale_log2, lead + mine);
        std::uint32_t p[Tile::kKeyAtoms][kBlocks][4];
        std::uint32_t ds[Tile::kKeyAtoms][kBlocks][4];
        pack_gradients<Tile>(p, ds, s, dp, ds_tile, memory.p, mine);
        multiply_accumulate<HS>(dv, p, dout + rows + columns);
        multiply_accumulate<HS>(dk, ds, q + rows + columns);
    }
    between();
    // In every step, also where a pair has nothing to add: racecheck counts a block's barriers by
    // the warp, and takes a warp that met one less for one that may still be a step behind.
    ptx::barrier_sync(1 + ptx::recomputed(warp_index()) / 2, 2 * kWarpSize);
    if (lead + others + kRows > 0) {
        const std::uint32_t keys =
            static_cast<std::uint32_t>(first_key_of_warp<Tile>() * kQueryRows * 2);
        const std::uint32_t rows = static_cast<std::uint32_t>(others * HS * 2) + columns;
        multiply_accumulate_shared<HS, Tile::kKeyAtoms, kSums, kBlocks>(dv, memory.p + keys, others,
                                                                        dout + rows);
        multiply_accumulate_shared<HS, Tile::kKeyAtoms, kSums, kBlocks>(dk, ds_tile + keys, others,
                                                                        q + rows);
    }
}

}  // namespace ingot::flash
