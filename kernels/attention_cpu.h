// Blocks of queries and keys: what the CPU's attention_forward and attention_backward share. Memory
// is that of the thread's stack, whatever T is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/core/tensor.h"
#include "kernels/cpu_tile.h"

namespace ingot::cpu_attention {

inline constexpr std::int64_t kMaxHeadSize = 256;

// Rows of one head inside a tensor (B, T, row_stride): element (t, d) is data[t * row_stride + d].
template <class E>
struct HeadRows {
    E* data;
    std::int64_t row_stride;
};

struct Layout {
    explicit Layout(const ConstTensor& qkv, int num_heads, int num_kv_heads)
        : T(qkv.dim(1)),
          qkv_stride(qkv.dim(2)),
          HS(qkv.dim(2) / (num_heads + 2 * std::int64_t{num_kv_heads})),
          NH(num_heads),
          NKV(num_kv_heads) {}

    // slot: 0..NH-1 queries, then NKV keys, then NKV values.
    template <class E>
    HeadRows<E> in_qkv(E* qkv, std::int64_t b, std::int64_t slot) const {
        return {qkv + b * T * qkv_stride + slot * HS, qkv_stride};
    }
    template <class E>
    HeadRows<E> in_out(E* out, std::int64_t b, std::int64_t h) const {
        return {out + b * T * NH * HS + h * HS, NH * HS};
    }
    std::int64_t key_slot(std::int64_t kv) const { return NH + kv; }
    std::int64_t value_slot(std::int64_t kv) const { return NH + NKV + kv; }

    std::int64_t T, qkv_stride, HS, NH, NKV;
};

// Queries and keys are handled in blocks. Scores are kept transposed, S[j][i], so that a row of S
// is one key against kQueries queries, and every inner loop runs over contiguous memory.
inline constexpr std::int64_t kQueries = 32;
inline constexpr std::int64_t kKeys = 32;

using Rows = float[kQueries * kMaxHeadSize];     // (rows, HS), rows <= kQueries
using Columns = float[kMaxHeadSize * kQueries];  // (HS, kQueries)
using Scores = float[kKeys * kQueries];          // (kKeys, kQueries)
static_assert(kKeys <= kQueries, "Rows also holds a block of keys");

// rows <- factor * source, in fp32.
template <class E>
inline void load_rows(float* rows,
                      const HeadRows<E>& source,
                      std::int64_t begin,
                      std::int64_t count,
                      std::int64_t HS,
                      float factor = 1.0F) {
    for (std::int64_t r = 0; r < count; ++r) {
        const E* row = source.data + (begin + r) * source.row_stride;
#pragma omp simd
        for (std::int64_t d = 0; d < HS; ++d)
            rows[r * HS + d] = factor * to_float(row[d]);
    }
}

// columns (HS, kQueries) <- the transpose of rows (count, HS); missing columns become 0.
inline void transpose(float* columns, const float* rows, std::int64_t count, std::int64_t HS) {
    for (std::int64_t d = 0; d < HS; ++d) {
        for (std::int64_t r = 0; r < kQueries; ++r)
            columns[d * kQueries + r] = r < count ? rows[r * HS + d] : 0.0F;
    }
}

// S[j][i] = sum_d keys[j][d] * queries[d][i] for the pairs of two blocks that causality allows.
// `offset` is the first key's position less the first query's; entries with j + offset > i are
// unspecified.
inline void multiply_pairs(float* scores,
                           const float* keys,
                           const float* query_columns,
                           std::int64_t num_keys,
                           std::int64_t HS,
                           std::int64_t offset) {
    for (std::int64_t j = 0; j < num_keys; j += cpu_tile::kRows) {
        const std::int64_t first = std::max<std::int64_t>(0, j + offset);
        const std::int64_t i = first / cpu_tile::kColumns * cpu_tile::kColumns;
        cpu_tile::multiply({.out = scores + j * kQueries + i,
                            .out_stride = kQueries,
                            .left = keys + j * HS,
                            .left_row_stride = HS,
                            .left_term_stride = 1,
                            .right = query_columns + i,
                            .right_stride = kQueries,
                            .num_rows = std::min(cpu_tile::kRows, num_keys - j),
                            .num_columns = kQueries - i,
                            .num_terms = HS,
                            .accumulate = false});
    }
}

// out[i][d] += sum over keys j of weights[j][i] * values[j][d]; the weights of forbidden pairs are
// 0.
inline void add_weighted_values(float* out,
                                const float* weights,
                                const float* values,
                                std::int64_t num_queries,
                                std::int64_t num_keys,
                                std::int64_t HS,
                                std::int64_t offset) {
    for (std::int64_t i = 0; i < num_queries; i += cpu_tile::kRows) {
        const std::int64_t rows = std::min(cpu_tile::kRows, num_queries - i);
        cpu_tile::multiply({.out = out + i * HS,
                            .out_stride = HS,
                            .left = weights + i,
                            .left_row_stride = 1,
                            .left_term_stride = kQueries,
                            .right = values,
                            .right_stride = HS,
                            .num_rows = rows,
                            .num_columns = HS,
                            .num_terms = std::min(num_keys, i + rows - offset),
                            .accumulate = true});
    }
}

// out[j][d] += sum over queries i of weights[j][i] * rows[i][d]; the weights of forbidden pairs are
// 0. out has its own stride: it may lie in a gradient tensor.
inline void add_weighted_queries(const HeadRows<float>& out,
                                 const float* weights,
                                 const float* rows,
                                 std::int64_t num_queries,
                                 std::int64_t num_keys,
                                 std::int64_t HS,
                                 std::int64_t offset) {
    for (std::int64_t j = 0; j < num_keys; j += cpu_tile::kRows) {
        const std::int64_t first = std::max<std::int64_t>(0, j + offset);
        cpu_tile::multiply({.out = out.data + j * out.row_stride,
                            .out_stride = out.row_stride,
                            .left = weights + j * kQueries + first,
                            .left_row_stride = kQueries,
                            .left_term_stride = 1,
                            .right = rows + first * HS,
                            .right_stride = HS,
                            .num_rows = std::min(cpu_tile::kRows, num_keys - j),
                            .num_columns = HS,
                            .num_terms = num_queries - first,
                            .accumulate = true});
    }
}

}  // namespace ingot::cpu_attention
