#include <cmath>

#include "bench/kernels/cases.h"
#include "kernels/attention_method.h"

namespace ingot::bench {

namespace {

// What the cases of one shape share.
struct Sizes {
    AttentionShape a;
    std::int64_t out = a.num_heads * std::int64_t{a.head_size};
    std::int64_t qkv = (a.num_heads + 2 * a.num_kv_heads) * std::int64_t{a.head_size};

    float scale() const { return 1.0F / std::sqrt(static_cast<float>(a.head_size)); }
    std::string text() const {
        return str("B", a.B, " ", a.num_heads, "/", a.num_kv_heads, " T", a.T, " D", a.head_size);
    }
    double rows_bytes(std::int64_t columns) const { return bytes_of(a.dtype, a.B * a.T * columns); }
    double lse_bytes() const { return bytes_of(DType::f32, a.B * a.num_heads * a.T); }
    // Multiply-adds of one product over the causal half of (T, T), times 2.
    double product() const {
        return static_cast<double>(a.B * out * a.T) * static_cast<double>(a.T);
    }
};

void prepare(Inputs& in, const Sizes& s, AttentionMethod method, bool deterministic) {
    prepare_attention(in.context(), {.method = method,
                                     .shape = s.a,
                                     .scale = s.scale(),
                                     .with_backward = true,
                                     .deterministic = deterministic});
}

std::function<Call(Inputs&)> forward(const Sizes& s, AttentionMethod method) {
    return [=](Inputs& in) -> Call {
        prepare(in, s, method, true);
        const AttentionForward args{.out = in.space(s.a.dtype, {s.a.B, s.a.T, s.out}),
                                    .lse = in.space(DType::f32, {s.a.B, s.a.num_heads, s.a.T}),
                                    .qkv = in.values(s.a.dtype, {s.a.B, s.a.T, s.qkv}),
                                    .num_heads = s.a.num_heads,
                                    .num_kv_heads = s.a.num_kv_heads,
                                    .scale = s.scale(),
                                    .method = method};
        return [=](Stream stream) { attention_forward(stream, args); };
    };
}

std::function<Call(Inputs&)> backward(const Sizes& s, AttentionMethod method, bool deterministic) {
    return [=](Inputs& in) -> Call {
        prepare(in, s, method, deterministic);
        const AttentionBackward args{
            .dqkv = in.space(s.a.dtype, {s.a.B, s.a.T, s.qkv}),
            .scratch = in.scratch(attention_backward_scratch_bytes(in.device(), s.a, method)),
            .dout = in.values(s.a.dtype, {s.a.B, s.a.T, s.out}),
            .out = in.values(s.a.dtype, {s.a.B, s.a.T, s.out}),
            .lse = in.values(DType::f32, {s.a.B, s.a.num_heads, s.a.T}, 5.0F, 7.0F),
            .qkv = in.values(s.a.dtype, {s.a.B, s.a.T, s.qkv}),
            .num_heads = s.a.num_heads,
            .num_kv_heads = s.a.num_kv_heads,
            .scale = s.scale(),
            .method = method,
            .deterministic = deterministic};
        return [=](Stream stream) { attention_backward(stream, args); };
    };
}

Case forward_case(const Sizes& s) {
    return {.op = "attention_forward",
            .shape = s.text(),
            .dtype = s.a.dtype,
            .bytes = s.rows_bytes(s.qkv + s.out) + s.lse_bytes(),
            .flops = 2.0 * s.product(),
            .make = forward(s, AttentionMethod::automatic),
            .is_alone = true};
}

Case backward_case(const Sizes& s) {
    return {.op = "attention_backward",
            .shape = s.text(),
            .dtype = s.a.dtype,
            .bytes = s.rows_bytes(2 * s.qkv + 2 * s.out) + s.lse_bytes(),
            .flops = 5.0 * s.product(),
            .make = backward(s, AttentionMethod::automatic, true),
            .is_alone = true};
}

void add_shape(std::vector<Case>& cases, const AttentionShape& a) {
    const Sizes s{a};
    cases.push_back(forward_case(s));
    cases.push_back(backward_case(s));
}

// cuDNN's time for the same work beside ours. Its deterministic backward pass is the one to compare
// with; the faster one is a case of its own.
void add_shape_with_cudnn(std::vector<Case>& cases, const AttentionShape& a) {
    const Sizes s{a};
    constexpr AttentionMethod kCudnn = AttentionMethod::cudnn;
    Case forward_beside = forward_case(s);
    forward_beside.library = {"cuDNN", forward(s, kCudnn)};
    cases.push_back(forward_beside);
    Case backward_beside = backward_case(s);
    backward_beside.library = {"cuDNN deterministic", backward(s, kCudnn, true)};
    cases.push_back(backward_beside);
    Case any_order = backward_case(s);
    any_order.op = "attention_backward_cudnn_any_order";
    any_order.make = backward(s, kCudnn, false);
    cases.push_back(any_order);
}

bool has_cudnn() {
    try {
        require_attention_library(AttentionMethod::cudnn);
    } catch (const Error&) {
        return false;
    }
    return true;
}

}  // namespace

void add_attention(std::vector<Case>& cases, const ModelSizes& m) {
    const int heads = static_cast<int>(m.num_heads);
    const int head_size = static_cast<int>(m.head_size());
    const bool is_for_gpu = m.device == Device::cuda;
    add_shape(cases, {m.B, m.T, heads, heads, head_size, DType::f32});
    add_shape(cases, {m.B, m.T, heads, heads / 4, head_size, DType::f32});
    const auto add = is_for_gpu && has_cudnn() ? add_shape_with_cudnn : add_shape;
    add(cases, {m.B, m.T, heads, heads, head_size, DType::bf16});
    add(cases, {m.B, m.T, heads, heads / 4, head_size, DType::bf16});
    if (!is_for_gpu) return;  // the rest are what docs/performance.md compares
    const AttentionShape shapes[] = {{16, 1024, 25, 25, 64, DType::bf16},
                                     {8, 2048, 32, 8, 64, DType::bf16},
                                     {32, 1024, 14, 2, 64, DType::bf16},
                                     {4, 2048, 32, 32, 128, DType::bf16},
                                     {2, 8192, 32, 8, 128, DType::bf16}};
    for (const AttentionShape& shape : shapes)
        add(cases, shape);
}

}  // namespace ingot::bench
