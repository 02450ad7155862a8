// Sizes of the flash attention backward pass that follow from the shape and the configuration,
// never from the device: the same scratch and the same order of additions everywhere. Host
// arithmetic that every build holds, so that memory can be planned without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/device/arithmetic.h"

namespace ingot::flash {

inline constexpr int kQueryRows = 64;  // queries of one step

// Whether the last heads start with their longest blocks. At head size 64, where blocks are shorter
// and two share a multiprocessor, that costs about as much as it gains.
constexpr bool has_late_heads(int head_size) {
    return head_size == 128;
}

struct BackwardPlan {
    std::int64_t query_tiles, key_blocks, heads_per_block, chunks, blocks;
    std::int64_t late_heads;  // the last heads, whose longest blocks come first
    std::int64_t dq_slots_log2, dkv_slots;
    std::int64_t flags_bytes;  // ticket and flags, zeroed before the kernel
    std::int64_t stats_bytes, dq_bytes, dkv_bytes;

    std::int64_t scratch_bytes() const { return flags_bytes + stats_bytes + dq_bytes + dkv_bytes; }
};

inline BackwardPlan plan_backward(const AttentionShape& s, int block_keys, int warps) {
    // More blocks than any card of today runs at once; only the size of the rings depends on it.
    constexpr std::int64_t kBlocksInFlight = 320;
    const auto round_up = [](std::int64_t bytes) {
        constexpr std::int64_t kAlignment = 256;
        return cuda::ceil_div(bytes, kAlignment) * kAlignment;
    };
    BackwardPlan plan{};
    const std::int64_t heads = s.B * s.num_heads;
    const std::int64_t kv_heads = s.B * s.num_kv_heads;
    const std::int64_t group = s.num_heads / s.num_kv_heads;
    plan.query_tiles = cuda::ceil_div<std::int64_t>(s.T, kQueryRows);
    plan.key_blocks = cuda::ceil_div<std::int64_t>(s.T, block_keys);
    // Few large blocks leave multiprocessors idle at the end: at least 10 rounds of them.
    plan.heads_per_block =
        std::clamp<std::int64_t>(heads * plan.key_blocks / (10 * kBlocksInFlight), 1, group);
    plan.chunks = cuda::ceil_div(group, plan.heads_per_block);
    plan.blocks = kv_heads * plan.chunks * plan.key_blocks;
    // At least the heads of one chunk: a block must not wait for one that starts after it.
    const std::int64_t chunks_in_flight = cuda::ceil_div(kBlocksInFlight, plan.key_blocks) + 1;
    while ((std::int64_t{1} << plan.dq_slots_log2) <
           std::min(heads, chunks_in_flight * plan.heads_per_block))
        ++plan.dq_slots_log2;
    const std::int64_t dq_slots = std::int64_t{1} << plan.dq_slots_log2;
    // At the end short blocks fill the gaps, in as many heads as have places of their own.
    if (has_late_heads(s.head_size) && plan.heads_per_block == 1)
        plan.late_heads = std::min(heads / 2, dq_slots);
    plan.dkv_slots =
        plan.chunks == 1
            ? 0
            : std::min(kv_heads, 2 * (cuda::ceil_div(chunks_in_flight, plan.chunks) + 1));
    const std::int64_t flags =
        1 + dq_slots * plan.query_tiles + plan.dkv_slots * plan.key_blocks * warps;
    plan.flags_bytes = round_up(flags * 4);
    plan.stats_bytes = round_up(heads * s.T * 8);
    plan.dq_bytes = round_up(dq_slots * plan.query_tiles * kQueryRows * s.head_size * 4);
    plan.dkv_bytes = round_up(plan.dkv_slots * plan.key_blocks * block_keys * 2 * s.head_size * 4);
    return plan;
}

}  // namespace ingot::flash

namespace ingot::cuda {

// Enough for every configuration that a card may choose.
inline std::int64_t flash_attention_backward_scratch_bytes(const AttentionShape& shape) {
    if (shape.B == 0) return 0;
    if (shape.head_size == 64) return flash::plan_backward(shape, 128, 4).scratch_bytes();
    return std::max(flash::plan_backward(shape, 128, 8).scratch_bytes(),
                    flash::plan_backward(shape, 64, 4).scratch_bytes());
}

}  // namespace ingot::cuda
