#include <cmath>

#include "bench/kernels/cases.h"
#include "kernels/attention.h"

namespace ingot::bench {

namespace {

void add_shape(std::vector<Case>& cases, const AttentionShape& a) {
    const std::int64_t B = a.B;
    const std::int64_t T = a.T;
    const std::int64_t out = a.num_heads * std::int64_t{a.head_size};
    const std::int64_t qkv = (a.num_heads + 2 * a.num_kv_heads) * std::int64_t{a.head_size};
    const float scale = 1.0F / std::sqrt(static_cast<float>(a.head_size));
    const std::string shape =
        str("B", B, " ", a.num_heads, "/", a.num_kv_heads, " T", T, " D", a.head_size);
    // Two products over the causal half of (T, T) forward, five backward.
    const double product = static_cast<double>(B * out * T) * static_cast<double>(T);
    const double lse_bytes = bytes_of(DType::f32, B * a.num_heads * T);
    cases.push_back({.op = "attention_forward",
                     .shape = shape,
                     .dtype = a.dtype,
                     .bytes = bytes_of(a.dtype, B * T * (qkv + out)) + lse_bytes,
                     .flops = 2.0 * product,
                     .make = [=](Inputs& in) -> Call {
                         const AttentionForward args{
                             .out = in.space(a.dtype, {B, T, out}),
                             .lse = in.space(DType::f32, {B, a.num_heads, T}),
                             .qkv = in.values(a.dtype, {B, T, qkv}),
                             .num_heads = a.num_heads,
                             .num_kv_heads = a.num_kv_heads,
                             .scale = scale};
                         return [=](Stream s) { attention_forward(s, args); };
                     }});
    cases.push_back({.op = "attention_backward",
                     .shape = shape,
                     .dtype = a.dtype,
                     .bytes = bytes_of(a.dtype, B * T * (2 * qkv + 2 * out)) + lse_bytes,
                     .flops = 5.0 * product,
                     .make = [=](Inputs& in) -> Call {
                         const AttentionBackward args{
                             .dqkv = in.space(a.dtype, {B, T, qkv}),
                             .scratch =
                                 in.scratch(attention_backward_scratch_bytes(in.device(), a)),
                             .dout = in.values(a.dtype, {B, T, out}),
                             .out = in.values(a.dtype, {B, T, out}),
                             .lse = in.values(DType::f32, {B, a.num_heads, T}, 5.0F, 7.0F),
                             .qkv = in.values(a.dtype, {B, T, qkv}),
                             .num_heads = a.num_heads,
                             .num_kv_heads = a.num_kv_heads,
                             .scale = scale};
                         return [=](Stream s) { attention_backward(s, args); };
                     }});
}

}  // namespace

void add_attention(std::vector<Case>& cases, const ModelSizes& m) {
    const int heads = static_cast<int>(m.num_heads);
    const int head_size = static_cast<int>(m.head_size());
    for (const DType dtype : {DType::f32, DType::bf16}) {
        add_shape(cases, {m.B, m.T, heads, heads, head_size, dtype});
        add_shape(cases, {m.B, m.T, heads, heads / 4, head_size, dtype});
    }
    if (m.T < 1024) return;  // the rest are for a GPU: what docs/performance.md compares
    const AttentionShape shapes[] = {{16, 1024, 25, 25, 64, DType::bf16},
                                     {8, 2048, 32, 8, 64, DType::bf16},
                                     {32, 1024, 14, 2, 64, DType::bf16},
                                     {4, 2048, 32, 32, 128, DType::bf16},
                                     {2, 8192, 32, 8, 128, DType::bf16}};
    for (const AttentionShape& shape : shapes)
        add_shape(cases, shape);
}

}  // namespace ingot::bench
