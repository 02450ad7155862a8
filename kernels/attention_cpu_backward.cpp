#include <algorithm>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/attention_cpu.h"
#include "kernels/cpu_math.h"

namespace ingot {
namespace {

using namespace cpu_attention;  // NOLINT(google-build-using-namespace): this file is part of it

// Where the gradients of one key/value head are summed over queries and over the heads of a group:
// in dqkv itself when that is fp32, else in scratch.
struct KeyValueSums {
    HeadRows<float> dkeys, dvalues;
};

// What the backward pass of one block of queries keeps.
struct QueryBlock {
    Rows queries;           // scale * q
    Columns query_columns;  // its transpose
    Rows dout;
    Columns dout_columns;
    Rows dqueries;        // without the factor scale
    float lse[kQueries];  // log sum exp
    float D[kQueries];    // dout . out
    std::int64_t begin, count;
};

template <class E>
void load_query_block(QueryBlock* block,
                      const AttentionBackward& a,
                      const Layout& layout,
                      std::int64_t b,
                      std::int64_t h) {
    const std::int64_t HS = layout.HS;
    const std::int64_t begin = block->begin;
    const std::int64_t count = block->count;
    load_rows(block->queries, layout.in_qkv(a.qkv.ptr<E>(), b, h), begin, count, HS, a.scale);
    load_rows(block->dout, layout.in_out(a.dout.ptr<E>(), b, h), begin, count, HS);
    load_rows(block->dqueries, layout.in_out(a.out.ptr<E>(), b, h), begin, count, HS);
    const float* lse = a.lse.ptr<float>() + (b * layout.NH + h) * layout.T + begin;
    for (std::int64_t i = 0; i < kQueries; ++i) {
        float sum = 0.0F;
        if (i < count) {
#pragma omp simd reduction(+ : sum)
            for (std::int64_t d = 0; d < HS; ++d)
                sum += block->dout[i * HS + d] * block->dqueries[i * HS + d];
        }
        block->D[i] = sum;
        block->lse[i] = i < count ? lse[i] : 0.0F;
    }
    transpose(block->query_columns, block->queries, count, HS);
    transpose(block->dout_columns, block->dout, count, HS);
    std::fill_n(block->dqueries, count * HS, 0.0F);
}

// scores become p, dscores (which hold dp) become ds; both 0 where forbidden.
void softmax_gradient(float* scores,
                      float* dscores,
                      const QueryBlock& block,
                      std::int64_t num_keys,
                      std::int64_t offset) {
    for (std::int64_t j = 0; j < num_keys; ++j) {
        float* p = scores + j * kQueries;
        float* ds = dscores + j * kQueries;
#pragma omp simd
        for (std::int64_t i = 0; i < kQueries; ++i) {
            p[i] = cpu_math::exp(p[i] - block.lse[i]);
            ds[i] = p[i] * (ds[i] - block.D[i]);
        }
        const std::int64_t num_forbidden = std::max<std::int64_t>(0, j + offset);
        std::fill_n(p, num_forbidden, 0.0F);
        std::fill_n(ds, num_forbidden, 0.0F);
    }
}

// Adds one block of queries: dq complete, its share of dk and dv.
template <class E>
void backward_block(QueryBlock* block,
                    const KeyValueSums& sums,
                    const HeadRows<const E>& keys,
                    const HeadRows<const E>& values,
                    std::int64_t HS) {
    Rows rows;
    Scores scores;
    Scores dscores;
    const auto from_row = [](const HeadRows<float>& all, std::int64_t row) {
        return HeadRows<float>{all.data + row * all.row_stride, all.row_stride};
    };
    const std::int64_t end = block->begin + block->count;
    for (std::int64_t key = 0; key < end; key += kKeys) {
        const std::int64_t num_keys = std::min(kKeys, end - key);
        const std::int64_t offset = key - block->begin;
        load_rows(rows, values, key, num_keys, HS);
        multiply_pairs(dscores, rows, block->dout_columns, num_keys, HS, offset);
        load_rows(rows, keys, key, num_keys, HS);
        multiply_pairs(scores, rows, block->query_columns, num_keys, HS, offset);
        softmax_gradient(scores, dscores, *block, num_keys, offset);
        add_weighted_values(block->dqueries, dscores, rows, block->count, num_keys, HS, offset);
        add_weighted_queries(from_row(sums.dvalues, key), scores, block->dout, block->count,
                             num_keys, HS, offset);
        add_weighted_queries(from_row(sums.dkeys, key), dscores, block->queries, block->count,
                             num_keys, HS, offset);
    }
}

template <class E>
KeyValueSums key_value_sums(const AttentionBackward& a,
                            const Layout& layout,
                            std::int64_t b,
                            std::int64_t kv) {
    if constexpr (std::is_same_v<E, float>) {
        float* dqkv = a.dqkv.ptr<float>();
        return {layout.in_qkv(dqkv, b, layout.key_slot(kv)),
                layout.in_qkv(dqkv, b, layout.value_slot(kv))};
    } else {
        const std::int64_t size = layout.T * layout.HS;
        float* dkeys = static_cast<float*>(a.scratch.data) + (b * layout.NKV + kv) * 2 * size;
        return {{dkeys, layout.HS}, {dkeys + size, layout.HS}};
    }
}

template <class E>
void store_rows(const HeadRows<E>& target,
                const HeadRows<float>& source,
                std::int64_t begin,
                std::int64_t count,
                std::int64_t HS,
                float factor) {
    for (std::int64_t r = 0; r < count; ++r) {
        E* to = target.data + (begin + r) * target.row_stride;
        const float* from = source.data + r * source.row_stride;
#pragma omp simd
        for (std::int64_t d = 0; d < HS; ++d)
            to[d] = from_float<E>(factor * from[d]);
    }
}

// Everything of one key/value head of one sequence; one thread, so the sums have one order.
template <class E>
void backward_head(const AttentionBackward& a,
                   const Layout& layout,
                   std::int64_t b,
                   std::int64_t kv) {
    const std::int64_t HS = layout.HS;
    const std::int64_t heads_per_group = layout.NH / layout.NKV;
    const E* qkv = a.qkv.ptr<E>();
    E* dqkv = a.dqkv.ptr<E>();
    const HeadRows<const E> keys = layout.in_qkv(qkv, b, layout.key_slot(kv));
    const HeadRows<const E> values = layout.in_qkv(qkv, b, layout.value_slot(kv));
    const KeyValueSums sums = key_value_sums<E>(a, layout, b, kv);
    for (std::int64_t t = 0; t < layout.T; ++t) {
        std::fill_n(sums.dkeys.data + t * sums.dkeys.row_stride, HS, 0.0F);
        std::fill_n(sums.dvalues.data + t * sums.dvalues.row_stride, HS, 0.0F);
    }
    for (std::int64_t h = kv * heads_per_group; h < (kv + 1) * heads_per_group; ++h) {
        for (std::int64_t begin = 0; begin < layout.T; begin += kQueries) {
            QueryBlock block;
            block.begin = begin;
            block.count = std::min(kQueries, layout.T - begin);
            load_query_block<E>(&block, a, layout, b, h);
            backward_block(&block, sums, keys, values, HS);
            store_rows(layout.in_qkv(dqkv, b, h), {block.dqueries, HS}, begin, block.count, HS,
                       a.scale);
        }
    }
    if constexpr (!std::is_same_v<E, float>) {
        store_rows(layout.in_qkv(dqkv, b, layout.key_slot(kv)), sums.dkeys, 0, layout.T, HS, 1.0F);
        store_rows(layout.in_qkv(dqkv, b, layout.value_slot(kv)), sums.dvalues, 0, layout.T, HS,
                   1.0F);
    }
}

}  // namespace

namespace cpu {

void attention_backward(const AttentionBackward& a) {
    dispatch_float(a.qkv.dtype, [&](auto zero) {
        const Layout layout(a.qkv, a.num_heads, a.num_kv_heads);
        const std::int64_t num_heads = a.qkv.dim(0) * layout.NKV;
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t task = 0; task < num_heads; ++task)
            backward_head<decltype(zero)>(a, layout, task / layout.NKV, task % layout.NKV);
    });
}

}  // namespace cpu
}  // namespace ingot
