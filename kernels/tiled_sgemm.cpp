#include "kernels/tiled_sgemm.h"

#include <algorithm>

namespace ingot::blas {
namespace {

// Registers hold kRows x kColumns sums. A tile of c is kTileM x kTileN; of its operands kTileK
// terms at a time are packed (96 KiB + 128 KiB, inside a second-level cache).
constexpr std::int64_t kRows = 6;
constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kTileM = 96;
constexpr std::int64_t kTileN = 128;
constexpr std::int64_t kTileK = 256;

struct Tile {
    std::int64_t m, n, k;               // where it starts
    std::int64_t rows, columns, terms;  // its size
};

struct Packed {
    alignas(64) float a[kTileM * kTileK];  // panels of kRows: a[panel][k][row], zero padded
    alignas(64) float b[kTileK * kTileN];  // panels of kColumns: b[panel][k][column], zero padded
};

void pack_a(Packed& packed, const Sgemm& g, const Tile& t) {
    for (std::int64_t panel = 0; panel < t.rows; panel += kRows) {
        float* out = packed.a + panel * t.terms;
        for (std::int64_t k = 0; k < t.terms; ++k) {
            for (std::int64_t i = 0; i < kRows; ++i) {
                const std::int64_t m = t.m + panel + i;
                const bool inside = panel + i < t.rows;
                const std::int64_t at =
                    g.transpose_a ? (t.k + k) * g.stride_a + m : m * g.stride_a + t.k + k;
                out[k * kRows + i] = inside ? g.a[at] : 0.0F;
            }
        }
    }
}

void pack_b(Packed& packed, const Sgemm& g, const Tile& t) {
    for (std::int64_t panel = 0; panel < t.columns; panel += kColumns) {
        float* out = packed.b + panel * t.terms;
        for (std::int64_t k = 0; k < t.terms; ++k) {
            for (std::int64_t j = 0; j < kColumns; ++j) {
                const std::int64_t n = t.n + panel + j;
                const bool inside = panel + j < t.columns;
                const std::int64_t at =
                    g.transpose_b ? n * g.stride_b + t.k + k : (t.k + k) * g.stride_b + n;
                out[k * kColumns + j] = inside ? g.b[at] : 0.0F;
            }
        }
    }
}

// c[0..rows, 0..columns] (+)= the product of one panel of a and one of b.
void multiply_panels(const float* a,
                     const float* b,
                     std::int64_t terms,
                     float* c,
                     std::int64_t stride,
                     std::int64_t rows,
                     std::int64_t columns,
                     bool accumulate) {
    float sums[kRows][kColumns] = {};
    for (std::int64_t k = 0; k < terms; ++k) {
        for (std::int64_t i = 0; i < kRows; ++i) {
            for (std::int64_t j = 0; j < kColumns; ++j) {
                sums[i][j] += a[k * kRows + i] * b[k * kColumns + j];
            }
        }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            const float before = accumulate ? c[i * stride + j] : 0.0F;
            c[i * stride + j] = before + sums[i][j];
        }
    }
}

void compute_tile(Packed& packed, const Sgemm& g, Tile t) {
    for (t.k = 0; t.k < g.K; t.k += kTileK) {
        t.terms = std::min(kTileK, g.K - t.k);
        pack_a(packed, g, t);
        pack_b(packed, g, t);
        for (std::int64_t j = 0; j < t.columns; j += kColumns) {
            for (std::int64_t i = 0; i < t.rows; i += kRows) {
                multiply_panels(packed.a + i * t.terms, packed.b + j * t.terms, t.terms,
                                g.c + (t.m + i) * g.stride_c + t.n + j, g.stride_c,
                                std::min(kRows, t.rows - i), std::min(kColumns, t.columns - j),
                                g.accumulate || t.k > 0);
            }
        }
    }
}

}  // namespace

void tiled_sgemm(const Sgemm& g) {
    if (g.K == 0 && !g.accumulate) {
        for (std::int64_t m = 0; m < g.M; ++m)
            std::fill_n(g.c + m * g.stride_c, g.N, 0.0F);
    }
    const std::int64_t tiles_m = (g.M + kTileM - 1) / kTileM;
    const std::int64_t tiles_n = (g.N + kTileN - 1) / kTileN;
#pragma omp parallel
    {
        Packed packed;  // 224 KiB of the thread's stack
#pragma omp for schedule(dynamic)
        for (std::int64_t tile = 0; tile < tiles_m * tiles_n; ++tile) {
            const std::int64_t m = tile / tiles_n * kTileM;
            const std::int64_t n = tile % tiles_n * kTileN;
            compute_tile(packed, g,
                         {.m = m,
                          .n = n,
                          .k = 0,
                          .rows = std::min(kTileM, g.M - m),
                          .columns = std::min(kTileN, g.N - n),
                          .terms = 0});
        }
    }
}

}  // namespace ingot::blas
