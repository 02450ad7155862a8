// Flash attention, forward. A block of 4 warps owns the scores of kRows queries of one head, a warp
// 16 * kRowAtoms of them, and walks over tiles of kKeys keys from the diagonal to the left:
//   S = Q K^T, running row maxima, P = 2^(S - max), sums, O += P V
// K and V arrive by cp.async in two stages, so that one barrier a tile is enough. P never leaves
// registers. Scores are kept in units of log2 (scale * log2 e folded into one multiply-add).
//
// The maximum that P is relative to is only raised when a row grew by more than 2^kSlack: P and the
// sums then reach 2^kSlack, which costs no precision in floating point, and O is rarely rescaled.
//
// Warps skip tiles, and in diagonal tiles 16-key blocks, that lie right of their last row.
#include <climits>

#include "kernels/attention_flash.cuh"
#include "kernels/attention_flash.h"
#include "kernels/attention_flash_host.cuh"
#include "kernels/device/launch.cuh"

namespace ingot {
namespace flash {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr float kSlack = 8.0F;

struct ForwardParams {
    bf16* out;
    float* lse;
    const bf16* qkv;
    int T;
    int num_heads;
    int num_kv_heads;
    int total_heads;      // B * NH
    int heads_in_flight;  // heads whose blocks are neighbours in launch order
    float scale_log2;
};

template <int HS, int kRowAtoms, int kKeys>
struct ForwardTile {
    static constexpr int kWarpRows = 16 * kRowAtoms;
    static constexpr int kRows = kWarps * kWarpRows;
    static constexpr bool kQueryInRegisters = HS == 64;
    static constexpr int kQueryBytes = kRows * HS * 2;
    static constexpr int kKeyBytes = kKeys * HS * 2;
    static constexpr int kSharedBytes = kQueryBytes + 4 * kKeyBytes;
};

// Which head and which tile of queries: groups of heads whose keys and values fit the L2 cache, in
// a group the tiles with most work first.
struct Work {
    int head;  // b * NH + h
    int tile;
};

__device__ Work forward_work(const ForwardParams& p, int num_tiles) {
    const int index = static_cast<int>(blockIdx.x);
    const int group = index / (p.heads_in_flight * num_tiles);
    const int first = group * p.heads_in_flight;
    const int heads = min(p.heads_in_flight, p.total_heads - first);
    const int rest = index - first * num_tiles;
    return {first + rest % heads, num_tiles - 1 - rest / heads};
}

// The state of the rows a warp owns: lane 4r+c keeps rows r and r+8 of each 16-row atom.
template <int HS, int kRowAtoms>
struct RowState {
    float out[kRowAtoms][HS / 8][4];
    float max[kRowAtoms][2];  // in log2 units; what P is relative to
    float sum[kRowAtoms][2];  // this lane's share
};

// Raises the maxima where a row outgrew its own, and rescales what was summed with the old one.
template <int HS, int kRowAtoms, int kKeys>
__device__ __forceinline__ void update_maxima(RowState<HS, kRowAtoms>& rows,
                                              const float (&s)[kRowAtoms][kKeys / 8][4],
                                              float scale_log2) {
    float top[kRowAtoms][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float value = s[m][0][2 * half];
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
                value = fmaxf(value, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
            value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
            top[m][half] = value * scale_log2;
            outgrown |= top[m][half] > rows.max[m][half] + kSlack;
        }
    }
    if (!__any_sync(0xffffffffU, outgrown)) return;
#pragma unroll
    for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float raised = fmaxf(rows.max[m][half], top[m][half]);
            const float factor = ptx::exp2_approx(rows.max[m][half] - raised);
            rows.max[m][half] = raised;
            rows.sum[m][half] *= factor;
#pragma unroll
            for (int n = 0; n < HS / 8; ++n) {
                rows.out[m][n][2 * half] *= factor;
                rows.out[m][n][2 * half + 1] *= factor;
            }
        }
    }
}

// s = Q K^T of one tile. Blocks of 16 keys from key_blocks on are left out when kDiagonal.
template <int HS, int kRowAtoms, int kKeys, bool kDiagonal>
__device__ __forceinline__ void scores(float (&s)[kRowAtoms][kKeys / 8][4],
                                       const std::uint32_t (&q)[kRowAtoms][HS / 16][4],
                                       std::uint32_t q_rows,
                                       std::uint32_t k_tile,
                                       int key_blocks) {
    const std::uint32_t a_base = rows_first<HS>(lane_index());
    const std::uint32_t b_base = columns_first<HS>(lane_index());
#pragma unroll
    for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
            s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0F;
        }
    }
#pragma unroll
    for (int k = 0; k < HS / 16; ++k) {
        std::uint32_t a[kRowAtoms][4];
#pragma unroll
        for (int m = 0; m < kRowAtoms; ++m) {
            if constexpr (ForwardTile<HS, kRowAtoms, kKeys>::kQueryInRegisters) {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    a[m][e] = q[m][k][e];
            } else {
                ptx::load_matrix_x4(a[m], block_address<HS>(q_rows, a_base, 16 * m, 16 * k));
            }
        }
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
            if (kDiagonal && n >= key_blocks) continue;
            std::uint32_t b[4];
            ptx::load_matrix_x4(b, block_address<HS>(k_tile, b_base, 16 * n, 16 * k));
#pragma unroll
            for (int m = 0; m < kRowAtoms; ++m) {
                ptx::multiply_add(s[m][2 * n], a[m], b[0], b[1]);
                ptx::multiply_add(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// One tile of keys for the rows of a warp. first_row and first_key are positions in the sequence.
template <int HS, int kRowAtoms, int kKeys, bool kDiagonal>
__device__ __forceinline__ void attend(RowState<HS, kRowAtoms>& rows,
                                       const std::uint32_t (&q)[kRowAtoms][HS / 16][4],
                                       std::uint32_t q_rows,
                                       std::uint32_t k_tile,
                                       std::uint32_t v_tile,
                                       int first_row,
                                       int first_key,
                                       float scale_log2) {
    const int lane = lane_index();
    const int key_blocks = (first_row + 16 * kRowAtoms - first_key + 15) / 16;
    float s[kRowAtoms][kKeys / 8][4];
    scores<HS, kRowAtoms, kKeys, kDiagonal>(s, q, q_rows, k_tile, key_blocks);
    if constexpr (kDiagonal) {
#pragma unroll
        for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = first_row + 16 * m + lane / 4 + 8 * (e / 2);
                    const int key = first_key + 8 * n + 2 * (lane % 4) + e % 2;
                    if (key > row) s[m][n][e] = -INFINITY;
                }
            }
        }
    }
    update_maxima<HS, kRowAtoms, kKeys>(rows, s, scale_log2);
    const std::uint32_t base = rows_first<HS>(lane_index());
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
        if (kDiagonal && k >= key_blocks) continue;
        std::uint32_t p[kRowAtoms][4];
#pragma unroll
        for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
            for (int n = 2 * k; n < 2 * k + 2; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    s[m][n][e] =
                        ptx::exp2_approx(fmaf(s[m][n][e], scale_log2, -rows.max[m][e / 2]));
                    rows.sum[m][e / 2] += s[m][n][e];
                }
            }
            pack_operand(p[m], s[m][2 * k], s[m][2 * k + 1]);
        }
#pragma unroll
        for (int n = 0; n < HS / 16; ++n) {
            std::uint32_t b[4];
            ptx::load_matrix_x4_transposed(b, block_address<HS>(v_tile, base, 16 * k, 16 * n));
#pragma unroll
            for (int m = 0; m < kRowAtoms; ++m) {
                ptx::multiply_add(rows.out[m][2 * n], p[m], b[0], b[1]);
                ptx::multiply_add(rows.out[m][2 * n + 1], p[m], b[2], b[3]);
            }
        }
    }
}

// Divides by the sums and writes the warp's rows, through the warp's own rows of the query tile.
template <int HS, int kRowAtoms>
__device__ __forceinline__ void store_rows(RowState<HS, kRowAtoms>& rows,
                                           std::uint32_t q_rows,
                                           const unsigned char* q_pointer,
                                           const ForwardParams& p,
                                           int head,
                                           int first_row) {
    const int lane = lane_index();
    const std::int64_t stride = static_cast<std::int64_t>(p.num_heads) * HS;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < kRowAtoms; ++m) {
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffU, sum, 1);
            sum += __shfl_xor_sync(0xffffffffU, sum, 2);
            inverse[half] = 1.0F / sum;
            const int row = first_row + 16 * m + 8 * half + lane / 4;
            if (lane % 4 == 0 && row < p.T) {
                p.lse[static_cast<std::int64_t>(head) * p.T + row] =
                    (rows.max[m][half] + log2f(sum)) * kLn2;
            }
        }
#pragma unroll
        for (int n = 0; n < HS / 8; ++n)
            store_sum<HS>(q_rows, 16 * m, n, rows.out[m][n], inverse[0], inverse[1]);
    }
    __syncwarp();
    bf16* out = p.out + (static_cast<std::int64_t>(head / p.num_heads) * p.T + first_row) * stride +
                head % p.num_heads * HS;
    store_rows_of_warp<HS, 16 * kRowAtoms>(out, stride, p.T - first_row, q_pointer);
}

template <int HS, int kRowAtoms, int kKeys>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(ForwardParams p) {
    using Tile = ForwardTile<HS, kRowAtoms, kKeys>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const std::uint32_t q_tile = ptx::shared_address(shared);
    const std::uint32_t stages = q_tile + Tile::kQueryBytes;  // K, V of stage 0, K, V of stage 1
    const int warp = warp_index();
    const Work work = forward_work(p, (p.T + Tile::kRows - 1) / Tile::kRows);
    const int block_row = work.tile * Tile::kRows;
    const int first_row = block_row + warp * Tile::kWarpRows;
    const std::int64_t stride = static_cast<std::int64_t>(p.num_heads + 2 * p.num_kv_heads) * HS;
    const bf16* sequence =
        p.qkv + static_cast<std::int64_t>(work.head / p.num_heads) * p.T * stride;
    const int h = work.head % p.num_heads;
    const bf16* keys = sequence + (p.num_heads + h / (p.num_heads / p.num_kv_heads)) * HS;
    const bf16* values = keys + p.num_kv_heads * HS;

    const auto load_keys = [&](int tile) {
        const std::uint32_t stage =
            stages + static_cast<std::uint32_t>(tile % 2 * 2) * Tile::kKeyBytes;
        const std::int64_t offset = tile * static_cast<std::int64_t>(kKeys) * stride;
        const int valid = p.T - tile * kKeys;
        load_tile_async<HS, kKeys, kThreads>(stage, keys + offset, stride, valid);
        load_tile_async<HS, kKeys, kThreads>(stage + Tile::kKeyBytes, values + offset, stride,
                                             valid);
        ptx::copy_async_commit();
    };
    load_tile_async<HS, Tile::kRows, kThreads>(q_tile, sequence + block_row * stride + h * HS,
                                               stride, p.T - block_row);
    int tile = (min(p.T, block_row + Tile::kRows) - 1) / kKeys;
    load_keys(tile);

    RowState<HS, kRowAtoms> rows;
#pragma unroll
    for (int m = 0; m < kRowAtoms; ++m) {
        rows.max[m][0] = rows.max[m][1] = -INFINITY;
        rows.sum[m][0] = rows.sum[m][1] = 0.0F;
#pragma unroll
        for (int n = 0; n < HS / 8; ++n) {
            rows.out[m][n][0] = rows.out[m][n][1] = rows.out[m][n][2] = rows.out[m][n][3] = 0.0F;
        }
    }
    const std::uint32_t q_rows =
        q_tile + static_cast<std::uint32_t>(warp * Tile::kWarpRows * HS * 2);
    std::uint32_t q[kRowAtoms][HS / 16][4];
    ptx::copy_async_wait<0>();
    __syncthreads();
    if constexpr (Tile::kQueryInRegisters) {
#pragma unroll
        for (int m = 0; m < kRowAtoms; ++m) {
#pragma unroll
            for (int k = 0; k < HS / 16; ++k)
                ptx::load_matrix_x4(q[m][k], block_address<HS>(q_rows, rows_first<HS>(lane_index()),
                                                               16 * m, 16 * k));
        }
    }
    while (true) {
        if (tile > 0) load_keys(tile - 1);
        const int first_key = tile * kKeys;
        const std::uint32_t k_tile =
            stages + static_cast<std::uint32_t>(tile % 2 * 2) * Tile::kKeyBytes;
        const std::uint32_t v_tile = k_tile + Tile::kKeyBytes;
        if (first_key + kKeys - 1 <= first_row) {
            attend<HS, kRowAtoms, kKeys, false>(rows, q, q_rows, k_tile, v_tile, first_row,
                                                first_key, p.scale_log2);
        } else if (first_key < first_row + Tile::kWarpRows) {
            attend<HS, kRowAtoms, kKeys, true>(rows, q, q_rows, k_tile, v_tile, first_row,
                                               first_key, p.scale_log2);
        }
        if (--tile < 0) break;
        ptx::copy_async_wait<0>();
        __syncthreads();
    }
    store_rows<HS, kRowAtoms>(rows, q_rows, shared + (q_rows - q_tile), p, work.head, first_row);
}

// Keys and values of this many bytes are kept in flight; half of the smallest L2 cache in question.
constexpr std::int64_t kCacheBytes = 16 << 20;

template <int HS, int kRowAtoms, int kKeys>
void launch_forward(Stream stream, const AttentionForward& a, int shared_limit) {
    using Tile = ForwardTile<HS, kRowAtoms, kKeys>;
    const AttentionShape s = shape_of(a.qkv, a.num_heads, a.num_kv_heads);
    ENSURE(Tile::kSharedBytes <= shared_limit, "attention.shared_memory",
           "attention_forward: ", Tile::kSharedBytes,
           " bytes of shared memory a block are needed, ", shared_limit,
           " are available; use the general path");
    const std::int64_t total_heads = s.B * s.num_heads;
    const std::int64_t group = s.num_heads / s.num_kv_heads;
    const std::int64_t cached = std::max<std::int64_t>(1, kCacheBytes / (s.T * HS * 4)) * group;
    const ForwardParams params{
        a.out.ptr<bf16>(),
        a.lse.ptr<float>(),
        a.qkv.ptr<bf16>(),
        static_cast<int>(s.T),
        s.num_heads,
        s.num_kv_heads,
        static_cast<int>(total_heads),
        static_cast<int>(std::min(cached, total_heads)),
        a.scale * kLog2E,
    };
    const std::int64_t tiles = (s.T + Tile::kRows - 1) / Tile::kRows;
    launch(stream, forward_kernel<HS, kRowAtoms, kKeys>, tiles * total_heads, kThreads,
           Tile::kSharedBytes, params, "attention_forward", a.qkv);
}

}  // namespace
}  // namespace flash

namespace cuda {

void flash_attention_forward(Stream stream, const AttentionForward& args, int shared_limit) {
    const AttentionShape s = flash::shape_of(args.qkv, args.num_heads, args.num_kv_heads);
    flash::check_call("attention_forward", s, args.scale, are_aligned(args.qkv, args.out));
    if (args.qkv.numel() == 0) return;
    const int limit = flash::shared_limit_bytes(shared_limit, "attention_forward", args.qkv);
    if (s.head_size == 64) {
        flash::launch_forward<64, 2, 64>(stream, args, limit);
    } else if (2 * flash::ForwardTile<128, 2, 64>::kSharedBytes + 1024 <= limit) {
        flash::launch_forward<128, 2, 64>(stream, args, limit);
    } else {  // two blocks a multiprocessor are worth more than wide tiles of keys
        flash::launch_forward<128, 2, 32>(stream, args, limit);
    }
}

}  // namespace cuda
}  // namespace ingot
