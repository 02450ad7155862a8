#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_cpu.h"
#include "kernels/cpu_math.h"

namespace ingot {
namespace {

using namespace cpu_attention;  // NOLINT(google-build-using-namespace): this file is part of it

// The running softmax of a block of queries: out holds sum_j exp(s_j - max) v_j, not yet divided.
struct Softmax {
    float max[kQueries];
    float sum[kQueries];
    float correction[kQueries];  // exp(old max - new max) of the last block of keys
};

// scores <- exp(scores - max), 0 where forbidden; moves the maximum and the sum on.
void advance_softmax(Softmax* softmax, float* scores, std::int64_t num_keys, std::int64_t offset) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    float new_max[kQueries];
    float added[kQueries] = {};
    std::copy_n(softmax->max, kQueries, new_max);
    for (std::int64_t j = 0; j < num_keys; ++j) {
        float* row = scores + j * kQueries;
        std::fill_n(row, std::max<std::int64_t>(0, j + offset), kMinusInfinity);
#pragma omp simd
        for (std::int64_t i = 0; i < kQueries; ++i)
            new_max[i] = row[i] > new_max[i] ? row[i] : new_max[i];
    }
    for (std::int64_t j = 0; j < num_keys; ++j) {
        float* row = scores + j * kQueries;
        // Not exp(-inf): results that underflow take a CPU many times as long.
        const std::int64_t num_forbidden = std::max<std::int64_t>(0, j + offset);
        std::copy_n(new_max, num_forbidden, row);
#pragma omp simd
        for (std::int64_t i = 0; i < kQueries; ++i)
            row[i] = cpu_math::exp(row[i] - new_max[i]);
        std::fill_n(row, num_forbidden, 0.0F);
#pragma omp simd
        for (std::int64_t i = 0; i < kQueries; ++i)
            added[i] += row[i];
    }
#pragma omp simd
    for (std::int64_t i = 0; i < kQueries; ++i) {
        softmax->correction[i] = cpu_math::exp(softmax->max[i] - new_max[i]);
        softmax->sum[i] = softmax->sum[i] * softmax->correction[i] + added[i];
        softmax->max[i] = new_max[i];
    }
}

// out and lse of the queries [begin, begin + kQueries) of one head.
template <class E>
void forward_block(const AttentionForward& a,
                   const Layout& layout,
                   std::int64_t b,
                   std::int64_t h,
                   std::int64_t begin) {
    const std::int64_t HS = layout.HS;
    const std::int64_t count = std::min(kQueries, layout.T - begin);
    const std::int64_t kv = h / (layout.NH / layout.NKV);
    const E* qkv = a.qkv.ptr<E>();
    const HeadRows<const E> keys = layout.in_qkv(qkv, b, layout.key_slot(kv));
    const HeadRows<const E> values = layout.in_qkv(qkv, b, layout.value_slot(kv));

    Rows rows;
    Columns query_columns;
    load_rows(rows, layout.in_qkv(qkv, b, h), begin, count, HS, a.scale);
    transpose(query_columns, rows, count, HS);
    Rows out;
    Scores scores;
    Softmax softmax;
    std::fill_n(out, count * HS, 0.0F);
    std::fill_n(softmax.max, kQueries, -std::numeric_limits<float>::infinity());
    std::fill_n(softmax.sum, kQueries, 0.0F);
    for (std::int64_t key = 0; key < begin + count; key += kKeys) {
        const std::int64_t num_keys = std::min(kKeys, begin + count - key);
        const std::int64_t offset = key - begin;
        load_rows(rows, keys, key, num_keys, HS);
        multiply_pairs(scores, rows, query_columns, num_keys, HS, offset);
        advance_softmax(&softmax, scores, num_keys, offset);
        for (std::int64_t i = 0; i < count; ++i) {
#pragma omp simd
            for (std::int64_t d = 0; d < HS; ++d)
                out[i * HS + d] *= softmax.correction[i];
        }
        load_rows(rows, values, key, num_keys, HS);
        add_weighted_values(out, scores, rows, count, num_keys, HS, offset);
    }
    const HeadRows<E> target = layout.in_out(a.out.ptr<E>(), b, h);
    float* lse = a.lse.ptr<float>() + (b * layout.NH + h) * layout.T + begin;
    for (std::int64_t i = 0; i < count; ++i) {
        const float inverse = 1.0F / softmax.sum[i];
        E* row = target.data + (begin + i) * target.row_stride;
        for (std::int64_t d = 0; d < HS; ++d)
            row[d] = from_float<E>(out[i * HS + d] * inverse);
        lse[i] = softmax.max[i] + std::log(softmax.sum[i]);
    }
}

}  // namespace

namespace cpu {

void attention_forward(const AttentionForward& a) {
    dispatch_float(a.qkv.dtype, [&](auto zero) {
        const Layout layout(a.qkv, a.num_heads, a.num_kv_heads);
        const std::int64_t num_heads = a.qkv.dim(0) * layout.NH;
        const std::int64_t num_blocks = (layout.T + kQueries - 1) / kQueries;
#pragma omp parallel for schedule(dynamic)
        for (std::int64_t task = 0; task < num_heads * num_blocks; ++task) {
            const std::int64_t head = task / num_blocks;
            // The longest rows first, so that no thread ends with one of them.
            const std::int64_t block = num_blocks - 1 - task % num_blocks;
            forward_block<decltype(zero)>(a, layout, head / layout.NH, head % layout.NH,
                                          block * kQueries);
        }
    });
}

}  // namespace cpu
}  // namespace ingot
