// What the kernels of the general attention path share: where heads lie, tiles of rows in shared
// memory, and two products of tiles.
//
// A block of 256 threads is a 16 x 16 grid (ty, tx). In a (kTile, kTile) product thread (ty, tx)
// owns rows ty + 16 r and columns tx + 16 c; in a (kTile, head size) product it owns rows ty + 16 r
// and columns 4 tx + 64 g ... + 3. Interleaved rows and a padded row length keep the 16-byte reads
// of shared memory free of bank conflicts.
#pragma once

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/device/reduce.cuh"

namespace ingot::cuda::general_attention {

constexpr int kThreads = 256;
constexpr float kLog2e = 1.4426950408889634F;

// kHead columns (64, 128 or 256) hold any head size up to kHead; the rest is zero.
template <int kHead, int kRows>
struct Shape {
    static constexpr int kTile = kRows;         // queries or keys of a tile
    static constexpr int kOwn = kRows / 16;     // rows and columns of a tile that a thread owns
    static constexpr int kGroups = kHead / 64;  // groups of four head columns it owns
    static constexpr int kStride = kHead + 4;   // floats of a padded row
    static constexpr int kScoreStride = kRows + 4;
    static constexpr int kTileFloats = kRows * kStride;
    static constexpr int kScoreFloats = kRows * kScoreStride;
};

struct Layout {
    std::int64_t T;
    int NH, NKV, HS;
    float scale;
    std::int64_t first_batch = 0;  // that blockIdx.z = 0 stands for

    __host__ __device__ std::int64_t qkv_stride() const {
        return static_cast<std::int64_t>(NH + 2 * NKV) * HS;
    }
    __host__ __device__ std::int64_t out_stride() const {
        return static_cast<std::int64_t>(NH) * HS;
    }
    // Of element (b, t = 0, slot, d = 0); slot counts query, then key, then value heads.
    __host__ __device__ std::int64_t qkv_offset(std::int64_t b, int slot) const {
        return b * T * qkv_stride() + static_cast<std::int64_t>(slot) * HS;
    }
    __host__ __device__ std::int64_t out_offset(std::int64_t b, int h) const {
        return b * T * out_stride() + static_cast<std::int64_t>(h) * HS;
    }
    __host__ __device__ std::int64_t lse_offset(std::int64_t b, int h) const {
        return (b * NH + h) * T;
    }
};

template <class Args>
Layout layout_of(const Args& args) {
    const int slots = args.num_heads + 2 * args.num_kv_heads;
    return {args.qkv.dim(1), args.num_heads, args.num_kv_heads,
            static_cast<int>(args.qkv.dim(2)) / slots, args.scale};
}

// tile (kTile, kStride) <- rows first ... first + kTile - 1 of one head, in fp32; rows past T and
// columns past HS become 0. Four columns a thread: HS is a multiple of 8, but a view need not be
// aligned.
template <class S, class T>
__device__ __forceinline__ void load_tile(
    float* tile, const T* head, std::int64_t row_stride, std::int64_t first, const Layout& l) {
    constexpr int kQuads = S::kGroups * 16;
    for (int i = static_cast<int>(threadIdx.x); i < S::kTile * kQuads; i += kThreads) {
        const int row = i / kQuads;
        const int column = i % kQuads * 4;
        float4 value = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (first + row < l.T && column < l.HS) {
            const T* source = head + (first + row) * row_stride + column;
            value =
                make_float4(widen(source[0]), widen(source[1]), widen(source[2]), widen(source[3]));
        }
        *reinterpret_cast<float4*>(tile + row * S::kStride + column) = value;
    }
}

__device__ __forceinline__ float4 quad(const float* place) {
    return *reinterpret_cast<const float4*>(place);
}

// products[r][c] = left row (ty + 16 r) . right row (tx + 16 c).
template <class S>
__device__ __forceinline__ void multiply_rows(float (&products)[S::kOwn][S::kOwn],
                                              const float* left,
                                              const float* right,
                                              int HS) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
#pragma unroll
        for (int c = 0; c < S::kOwn; ++c)
            products[r][c] = 0.0F;
    }
    for (int d = 0; d < HS; d += 4) {
        float4 x[S::kOwn], y[S::kOwn];
#pragma unroll
        for (int r = 0; r < S::kOwn; ++r) {
            x[r] = quad(left + (ty + 16 * r) * S::kStride + d);
            y[r] = quad(right + (tx + 16 * r) * S::kStride + d);
        }
#pragma unroll
        for (int r = 0; r < S::kOwn; ++r) {
#pragma unroll
            for (int c = 0; c < S::kOwn; ++c) {
                products[r][c] += x[r].x * y[c].x;
                products[r][c] += x[r].y * y[c].y;
                products[r][c] += x[r].z * y[c].z;
                products[r][c] += x[r].w * y[c].w;
            }
        }
    }
}

// sums[r][g] += sum over j of weights[ty + 16 r][j] * rows[j][4 tx + 64 g ...].
template <class S>
__device__ __forceinline__ void add_weighted(float4 (&sums)[S::kOwn][S::kGroups],
                                             const float* weights,
                                             const float* rows) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    for (int j = 0; j < S::kTile; j += 4) {
        float4 w[S::kOwn];
#pragma unroll
        for (int r = 0; r < S::kOwn; ++r)
            w[r] = quad(weights + (ty + 16 * r) * S::kScoreStride + j);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
            for (int g = 0; g < S::kGroups; ++g) {
                const float4 x = quad(rows + (j + k) * S::kStride + 4 * tx + 64 * g);
#pragma unroll
                for (int r = 0; r < S::kOwn; ++r) {
                    const float factor = k == 0   ? w[r].x
                                         : k == 1 ? w[r].y
                                         : k == 2 ? w[r].z
                                                  : w[r].w;
                    sums[r][g].x += factor * x.x;
                    sums[r][g].y += factor * x.y;
                    sums[r][g].z += factor * x.z;
                    sums[r][g].w += factor * x.w;
                }
            }
        }
    }
}

// Writes what a thread owns of a (kTile, HS) result, times `factor[r]`.
template <class S, class T>
__device__ __forceinline__ void store_rows(T* head,
                                           std::int64_t row_stride,
                                           std::int64_t first,
                                           const Layout& l,
                                           const float4 (&values)[S::kOwn][S::kGroups],
                                           const float (&factor)[S::kOwn]) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
        const std::int64_t row = first + ty + 16 * r;
        if (row >= l.T) continue;
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g) {
            const int column = 4 * tx + 64 * g;
            if (column >= l.HS) continue;
            T* target = head + row * row_stride + column;
            target[0] = narrow<T>(values[r][g].x * factor[r]);
            target[1] = narrow<T>(values[r][g].y * factor[r]);
            target[2] = narrow<T>(values[r][g].z * factor[r]);
            target[3] = narrow<T>(values[r][g].w * factor[r]);
        }
    }
}

// Whose launch it is, and its blocks: tiles x heads x batches, which are those of qkv.
struct Grid {
    const char* op;
    const TensorShape& qkv;
    std::int64_t tiles;
    int heads;
};

// Raises the kernel's shared-memory limit and launches it, as often as a grid's limit of 65,535
// batches makes necessary.
template <class Kernel, class Arrays>
void launch(Stream stream, Kernel kernel, Arrays arrays, const Grid& grid, int floats) {
    constexpr std::int64_t kMost = 65535;  // blocks of a grid along y and along z
    ENSURE(grid.heads <= kMost, "cuda.grid", grid.op, " on ", grid.qkv.shape_string(), " has ",
           grid.heads, " heads, a grid has at most ", kMost, "; use fewer heads");
    const int bytes = floats * static_cast<int>(sizeof(float));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               grid.op, grid.qkv);
    const unsigned tiles = grid_blocks(grid.op, grid.qkv, grid.tiles);
    const std::int64_t batches = grid.qkv.dim(0);
    for (std::int64_t begin = 0; begin < batches; begin += kMost) {
        arrays.l.first_batch = begin;
        const dim3 blocks(tiles, static_cast<unsigned>(grid.heads),
                          static_cast<unsigned>(std::min(kMost, batches - begin)));
        kernel<<<blocks, kThreads, static_cast<std::size_t>(bytes), native(stream)>>>(arrays);
    }
}

}  // namespace ingot::cuda::general_attention
