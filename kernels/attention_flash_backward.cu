// Flash attention, backward, deterministic and without atomic sums.
//
// A block owns kKeys keys of one key/value head: K and V stay in shared memory, dK and dV in
// registers, while it walks over the tiles of 64 queries that see them, of one query head of the
// group after the other. A step, for 64 queries and kKeys keys:
//   S^T = K Q^T, dP^T = V dO^T, P and dS elementwise, dV += P^T dO, dK += dS^T Q, dQ += dS K
// dQ of a tile is a sum over key blocks, so over thread blocks; they add in a fixed order through
// memory. The count, a step: 5 products, 640 * kKeys * HS operations; 512 * HS bytes of dQ read and
// written in the L2 cache, 1 byte for 160 operations when kKeys = 128. The other deterministic way,
// a second kernel that owns queries and forms S and dP again, takes 7 products: 40 % more
// operations.
//
// The order is that of descending key blocks. Blocks take their work by ticket: heads in order, in
// a head the last key block first. A block starts at its diagonal tile, so it comes to each tile
// kKeys / 64 steps after the block of the next keys did: turns come without waiting when blocks
// start together. A block only ever waits for blocks that started before it, so none waits forever.
// The block of the first keys adds last and writes dq. Blocks grow longer in that order, so the
// last heads, at most as many as the ring has places, are handled the other way at head size 128:
// their blocks in ascending order, a block of one head after that of the other, from the last tile
// of queries to the diagonal one. The longest blocks start first there, short ones fill the gaps at
// the end, and a block still waits only for blocks that started before it. Sums live in a ring of
// heads, small enough for the L2 cache; a flag counts the additions to a tile over all rounds of
// the ring.
//
// With lag, dQ of a tile is formed in the step after its dS, from a second dS tile: one barrier a
// step instead of two, and the turn is waited for and announced a step apart from the sums
// themselves.
//
// When blocks are few, the query heads of a group are split into chunks, and the chunks' dk and dv
// are added in order through memory in the same way.
#include "kernels/attention_flash.h"
#include "kernels/attention_flash_backward.cuh"
#include "kernels/attention_flash_backward_step.cuh"
#include "kernels/attention_flash_backward_sums.cuh"
#include "kernels/attention_flash_host.cuh"
#include "kernels/device/launch.cuh"

namespace ingot {
namespace flash {
namespace {

struct StatsParams {
    float2* stats;  // (B, NH, T)
    const bf16* dout;
    const bf16* out;
    const float* lse;
    int T;
    int num_heads;
    int row_blocks;  // blocks a head
};

constexpr int kStatsThreads = 256;

__device__ __forceinline__ float dot_pair(std::uint32_t a, std::uint32_t b, float sum) {
    sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
    return fmaf(__uint_as_float(a & 0xffff0000U), __uint_as_float(b & 0xffff0000U), sum);
}

// stats[b, h, t] = (lse * log2 e, dout . out). HS / 8 lanes a row.
template <int HS>
__global__ void __launch_bounds__(kStatsThreads) stats_kernel(StatsParams p) {
    constexpr int kLanes = HS / 8;
    const int head = static_cast<int>(blockIdx.x) / p.row_blocks;
    const int block = static_cast<int>(blockIdx.x) % p.row_blocks;
    const int t = block * (kStatsThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    float sum = 0.0F;
    if (t < p.T) {
        const std::int64_t row = static_cast<std::int64_t>(head / p.num_heads) * p.T + t;
        const std::int64_t offset = (row * p.num_heads + head % p.num_heads) * HS + lane * 8;
        const uint4 a = *reinterpret_cast<const uint4*>(p.dout + offset);
        const uint4 b = *reinterpret_cast<const uint4*>(p.out + offset);
        sum = dot_pair(a.x, b.x, dot_pair(a.y, b.y, dot_pair(a.z, b.z, dot_pair(a.w, b.w, 0.0F))));
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    if (t < p.T && lane == 0) {
        const std::int64_t index = static_cast<std::int64_t>(head) * p.T + t;
        p.stats[index] = make_float2(p.lse[index] * kLog2E, sum);
    }
}

// What a block works on.
struct Work {
    int sequence;    // b
    int kv_head;     // in the sequence
    int chunk;       // of the group's query heads
    int block;       // of keys
    int first_head;  // in the sequence
    int num_heads;   // query heads of the chunk
    bool is_late;    // key blocks in ascending order
};

template <class Tile>
__device__ __forceinline__ Work backward_work(const BackwardParams& p, int ticket) {
    Work w;
    w.is_late = Tile::kHasLateHeads && ticket >= p.early_blocks;
    if (w.is_late) {
        ticket -= p.early_blocks;
        w.block = ticket / p.late_heads;
        ticket = p.early_blocks / p.key_blocks + ticket % p.late_heads;
    } else {
        w.block = p.key_blocks - 1 - ticket % p.key_blocks;
        ticket /= p.key_blocks;
    }
    w.chunk = ticket % p.chunks;
    ticket /= p.chunks;
    w.sequence = ticket / p.num_kv_heads;
    w.kv_head = ticket % p.num_kv_heads;
    const int group = p.num_heads / p.num_kv_heads;
    const int begin = w.chunk * p.heads_per_block;
    w.first_head = w.kv_head * group + begin;
    w.num_heads = min(p.heads_per_block, group - begin);
    return w;
}

template <class Tile>
__device__ __forceinline__ void load_keys(const BackwardParams& p,
                                          const Memory<Tile>& memory,
                                          const Work& work) {
    constexpr int HS = Tile::HS;
    const int first = work.block * Tile::kKeys;
    const std::int64_t stride = static_cast<std::int64_t>(p.num_heads + 2 * p.num_kv_heads) * HS;
    const bf16* keys = p.qkv + (static_cast<std::int64_t>(work.sequence) * p.T + first) * stride +
                       (p.num_heads + work.kv_head) * HS;
    load_tile_async<HS, Tile::kKeys, Tile::kThreads>(memory.k, keys, stride, p.T - first);
    load_tile_async<HS, Tile::kKeys, Tile::kThreads>(memory.v, keys + p.num_kv_heads * HS, stride,
                                                     p.T - first);
}

// The end of a block: dk and dv are added to those of earlier chunks, and the last chunk writes
// them.
template <class Tile>
__device__ __forceinline__ void store_key_gradients(
    const BackwardParams& p,
    const Work& work,
    const Memory<Tile>& memory,
    const unsigned char* k_pointer,
    float (&dk)[Tile::kKeyAtoms][Tile::kColumns / 8][4],
    float (&dv)[Tile::kKeyAtoms][Tile::kColumns / 8][4]) {
    constexpr int HS = Tile::HS;
    const int lane = lane_index();
    const int warp = warp_index();
    const bool is_last = work.chunk == p.chunks - 1;
    if (p.chunks > 1) {
        const int kv = work.sequence * p.num_kv_heads + work.kv_head;
        const std::int64_t place =
            static_cast<std::int64_t>(kv % p.dkv_slots) * p.key_blocks + work.block;
        const Turn turn{p.dkv_flags + place * Tile::kWarps + warp,
                        kv / p.dkv_slots * p.chunks + work.chunk};
        constexpr int kWarpValues = Tile::kKeyAtoms * (Tile::kColumns / 8) * kWarpSize;  // of four
        float4* ring = reinterpret_cast<float4*>(p.dkv_ring + place * (2 * Tile::kKeys * HS)) +
                       warp * 2 * kWarpValues + lane;
        if (lane == 0) wait_for_turn(turn);
        __syncwarp();
        add_chunk<Tile>(dk, ring, work.chunk == 0, is_last);
        add_chunk<Tile>(dv, ring + kWarpValues, work.chunk == 0, is_last);
        __syncwarp();
        if (lane == 0) end_turn(turn);
    }
    if (!is_last) return;
    const int first_column = warp % Tile::kShare * (Tile::kColumns / 8);
    const std::uint32_t keys = static_cast<std::uint32_t>(first_key_of_warp<Tile>() * HS * 2);
#pragma unroll
    for (int m = 0; m < Tile::kKeyAtoms; ++m) {
#pragma unroll
        for (int n = 0; n < Tile::kColumns / 8; ++n) {
            store_sum<HS>(memory.k + keys, 16 * m, first_column + n, dk[m][n], p.scale, p.scale);
            store_sum<HS>(memory.v + keys, 16 * m, first_column + n, dv[m][n], 1.0F, 1.0F);
        }
    }
    if (Tile::kShare == 1) {
        __syncwarp();
    } else {
        ptx::barrier_sync(1 + warp / Tile::kShare, Tile::kShare * kWarpSize);
    }
    constexpr int kRows = Tile::kKeys / Tile::kWarps;  // written by this warp
    const int first = warp * kRows;
    const std::uint32_t offset = static_cast<std::uint32_t>(first * HS * 2);
    const std::int64_t stride = static_cast<std::int64_t>(p.num_heads + 2 * p.num_kv_heads) * HS;
    const int row = work.block * Tile::kKeys + first;
    bf16* out = p.dqkv + (static_cast<std::int64_t>(work.sequence) * p.T + row) * stride +
                (p.num_heads + work.kv_head) * HS;
    store_rows_of_warp<HS, kRows>(out, stride, p.T - row, k_pointer + offset);
    store_rows_of_warp<HS, kRows>(out + p.num_kv_heads * HS, stride, p.T - row,
                                  k_pointer + Tile::kKeyBytes + offset);
}

// The tile whose dQ a step forms.
template <class Tile>
__device__ __forceinline__ QueryTile behind(const BackwardParams& p,
                                            const Span<Tile>& span,
                                            QueryTile now) {
    return p.lag == 0 ? now : tile_before(p, span, now);
}

// After the barrier: starts the copy of the next tile, and announces the addition to dQ that ended
// with the barrier.
template <class Tile>
__device__ __forceinline__ void begin_step(const BackwardParams& p,
                                           const Memory<Tile>& memory,
                                           const Span<Tile>& span,
                                           QueryTile now,
                                           int step) {
    if (Tile::kStages == 2 && step + 1 < span.steps)
        load_queries(p, memory, (step + 1) & 1, span.sequence, tile_after(p, span, now));
    if (thread_index() == kWarpSize && step > p.lag) {
        const QueryTile ended = behind(p, span, tile_before(p, span, now));
        end_turn(QueryGradient<Tile>::turn(p, span, ended));
    }
}

template <int HS, int kKeyAtoms, int kWarps, int kShare>
__global__ void __launch_bounds__(kWarps* kWarpSize, kWarps == 4 ? 2 : 1)
    backward_kernel(BackwardParams p) {
    using Tile = BackwardTile<HS, kKeyAtoms, kWarps, kShare>;
    using Dq = QueryGradient<Tile>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const std::uint32_t span_address = ptx::shared_address(shared);
    const Memory<Tile> memory(span_address + Tile::kSpanBytes, p.lag);
    if (threadIdx.x == 0) {
        const int ticket = atomicAdd(p.ticket, 1);
        const Work work = backward_work<Tile>(p, ticket);
        const int first_tile = work.block * (Tile::kKeys / kQueryRows);
        int4* span = reinterpret_cast<int4*>(shared);
        span[0] = {work.sequence, work.is_late ? ~work.block : work.block, first_tile,
                   work.num_heads * (p.query_tiles - first_tile)};
        span[1] = {work.first_head, work.is_late ? p.query_tiles - 1 : first_tile, ticket, 0};
    }
    __syncthreads();
    // Even steps find their tile in the second 16 bytes, odd ones in the third.
    const auto span = [&] { return Span<Tile>(ptx::load_shared_int4(span_address)); };
    const auto now = [&](int step) {
        const int4 at = ptx::load_shared_int4(span_address + 16 + (step & 1) * 16);
        return QueryTile{at.x, at.y};
    };
    const int ticket = ptx::load_shared_int4(span_address + 16).z;
    if (threadIdx.x == 0) reinterpret_cast<int4*>(shared)[3].x = ticket;
    load_keys(p, memory, backward_work<Tile>(p, ticket));
    load_queries(p, memory, 0, span().sequence, now(0));

    constexpr int kSums = Tile::kColumns / 8;
    float dk[kKeyAtoms][kSums][4];
    float dv[kKeyAtoms][kSums][4];
#pragma unroll
    for (int i = 0; i < kKeyAtoms * kSums * 4; ++i) {
        dk[i / (kSums * 4)][i / 4 % kSums][i % 4] = 0.0F;
        dv[i / (kSums * 4)][i / 4 % kSums][i % 4] = 0.0F;
    }
    Dq dq;
    if (p.lag == 0 && threadIdx.x == 0) wait_for_turn(Dq::turn(p, span(), now(0)));
        // With lag, step s forms dQ of tile s - 1, and one more step forms the last.
#pragma unroll 1
    for (int step = 0; step < span().steps; ++step) {
        ptx::copy_async_wait<0>();
        __syncthreads();  // the tile is there, the turn has come, all are done with the step before
        begin_step(p, memory, span(), now(step), step);
        const int lead =
            now(step).tile * kQueryRows - span().block * Tile::kKeys - first_key_of_warp<Tile>();
        const auto load_sums = [&] {
            if (step >= p.lag) dq.load(p, span(), behind(p, span(), now(step)));
        };
        if constexpr (kShare == 1) {
            add_key_gradients<Tile>(dk, dv, memory, step & (Tile::kStages - 1),
                                    memory.ds(step & p.lag), lead, p.scale_log2, load_sums);
        } else {
            add_key_gradients_of_pair<Tile>(dk, dv, memory, step & (Tile::kStages - 1),
                                            memory.ds(step & p.lag), lead, p.scale_log2, load_sums);
        }
        if (p.lag == 0) __syncthreads();
        if (step >= p.lag) {
            dq.multiply(memory.ds((step ^ 1) & p.lag), memory.k, span().block,
                        behind(p, span(), now(step)).tile);
            dq.store(p, span(), behind(p, span(), now(step)));
        }
        const QueryTile next = tile_after(p, span(), now(step));
        if (thread_index() == 0) {
            reinterpret_cast<int4*>(shared)[1 + ((step + 1) & 1)] = {next.head, next.tile, 0, 0};
            if (step + 1 < span().steps + p.lag)
                wait_for_turn(Dq::turn(p, span(), p.lag == 0 ? next : now(step)));
        }
        if (Tile::kStages == 1 && step + 1 < span().steps)
            load_queries(p, memory, 0, span().sequence, next);
    }
    __syncthreads();
    const QueryTile last = tile_before(p, span(), now(span().steps));
    if (p.lag != 0) {
        if (thread_index() == kWarpSize && span().steps > 1)
            end_turn(Dq::turn(p, span(), tile_before(p, span(), last)));
        dq.load(p, span(), last);
        dq.multiply(memory.ds((span().steps ^ 1) & 1), memory.k, span().block, last.tile);
        dq.store(p, span(), last);
        __syncthreads();
    }
    if (thread_index() == kWarpSize) end_turn(Dq::turn(p, span(), last));
    store_key_gradients<Tile>(p, backward_work<Tile>(p, ptx::load_shared_int4(span_address + 48).x),
                              memory, shared + Tile::kSpanBytes, dk, dv);
}

template <int HS>
void launch_stats(Stream stream,
                  const AttentionBackward& a,
                  const AttentionShape& s,
                  float2* stats) {
    constexpr int kRows = kStatsThreads / (HS / 8);
    const std::int64_t row_blocks = cuda::ceil_div<std::int64_t>(s.T, kRows);
    const StatsParams params{stats,
                             a.dout.ptr<bf16>(),
                             a.out.ptr<bf16>(),
                             a.lse.ptr<float>(),
                             static_cast<int>(s.T),
                             s.num_heads,
                             static_cast<int>(row_blocks)};
    launch(stream, stats_kernel<HS>, row_blocks * s.B * s.num_heads, kStatsThreads, 0, params,
           "attention_backward", a.qkv);
}

template <int HS, int kKeyAtoms, int kWarps, int kShare>
void launch_backward(Stream stream, const AttentionBackward& a, const AttentionShape& s, int lag) {
    using Tile = BackwardTile<HS, kKeyAtoms, kWarps, kShare>;
    const BackwardPlan plan = plan_backward(s, Tile::kKeys, kWarps);
    unsigned char* scratch = a.scratch.ptr<std::uint8_t>();
    int* flags = reinterpret_cast<int*>(scratch);
    float2* stats = reinterpret_cast<float2*>(scratch + plan.flags_bytes);
    float* dq_ring = reinterpret_cast<float*>(scratch + plan.flags_bytes + plan.stats_bytes);
    BackwardParams params{};
    params.dqkv = a.dqkv.ptr<bf16>();
    params.qkv = a.qkv.ptr<bf16>();
    params.dout = a.dout.ptr<bf16>();
    params.stats = stats;
    params.dq_ring = dq_ring;
    params.dkv_ring = dq_ring + plan.dq_bytes / 4;
    params.ticket = flags;
    params.dq_flags = flags + 1;
    params.dkv_flags = params.dq_flags + (plan.query_tiles << plan.dq_slots_log2);
    params.T = static_cast<int>(s.T);
    params.num_heads = s.num_heads;
    params.num_kv_heads = s.num_kv_heads;
    params.query_tiles = static_cast<int>(plan.query_tiles);
    params.key_blocks = static_cast<int>(plan.key_blocks);
    params.heads_per_block = static_cast<int>(plan.heads_per_block);
    params.chunks = static_cast<int>(plan.chunks);
    params.late_heads = static_cast<int>(plan.late_heads);
    params.early_blocks = static_cast<int>(plan.blocks - plan.late_heads * plan.key_blocks);
    params.dq_slots_log2 = static_cast<int>(plan.dq_slots_log2);
    params.dkv_slots = static_cast<int>(plan.dkv_slots);
    params.lag = lag;
    params.scale = a.scale;
    params.scale_log2 = a.scale * kLog2E;
    CUDA_CHECK(
        cudaMemsetAsync(flags, 0, static_cast<std::size_t>(plan.flags_bytes), cuda::native(stream)),
        "attention_backward", a.qkv);
    launch_stats<HS>(stream, a, s, stats);
    launch(stream, backward_kernel<HS, kKeyAtoms, kWarps, kShare>, plan.blocks, Tile::kThreads,
           Tile::shared_bytes(lag), params, "attention_backward", a.qkv);
}

}  // namespace
}  // namespace flash

namespace cuda {

void flash_attention_backward(Stream stream, const AttentionBackward& args, int shared_limit) {
    using Small = flash::BackwardTile<64, 2, 4>;
    using Wide = flash::BackwardTile<128, 2, 8, 2>;
    using Narrow = flash::BackwardTile<128, 1, 4>;
    const AttentionShape s = flash::shape_of(args.qkv, args.num_heads, args.num_kv_heads);
    flash::check_call("attention_backward", s, args.scale,
                      are_aligned(args.qkv, args.dqkv, args.out, args.dout, args.scratch));
    if (args.qkv.numel() == 0) return;
    const int limit = flash::shared_limit_bytes(shared_limit, "attention_backward", args.qkv);
    const int least = s.head_size == 64 ? Small::shared_bytes(0) : Narrow::shared_bytes(0);
    ENSURE(least <= limit, "attention.shared_memory", "attention_backward: ", least,
           " bytes of shared memory a block are needed, ", limit,
           " are available; use the general path");
    if (s.head_size == 64) {  // two blocks a multiprocessor are worth more than the lag
        const int lag = 2 * Small::shared_bytes(1) + 1024 <= limit ? 1 : 0;
        flash::launch_backward<64, 2, 4, 1>(stream, args, s, lag);
    } else if (Wide::shared_bytes(0) <= limit) {
        const int lag = Wide::shared_bytes(1) <= limit ? 1 : 0;
        flash::launch_backward<128, 2, 8, 2>(stream, args, s, lag);
    } else {
        flash::launch_backward<128, 1, 4, 1>(stream, args, s, 0);
    }
}

}  // namespace cuda
}  // namespace ingot
