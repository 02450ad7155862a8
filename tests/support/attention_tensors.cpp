#include "tests/support/attention_tensors.h"

#include <algorithm>

namespace ingot::test {

AttentionInputs attention_inputs(const AttentionSize& s, float size) {
    return {random_values("qkv", s.B * s.T * s.row(), -size, size),
            random_values("dout", s.B * s.T * s.C())};
}

AttentionTensors::AttentionTensors(Context& context,
                                   DType dtype,
                                   const AttentionSize& s,
                                   const AttentionInputs& inputs)
    : AttentionTensors(context,
                       dtype,
                       s,
                       inputs,
                       attention_backward_scratch_bytes(context.device(), s.attention(dtype))) {}

AttentionTensors::AttentionTensors(Context& context,
                                   DType dtype,
                                   const AttentionSize& s,
                                   const AttentionInputs& inputs,
                                   std::int64_t scratch_bytes)
    : shape(s),
      qkv(context, dtype, {s.B, s.T, s.row()}, inputs.qkv),
      dout(context, dtype, {s.B, s.T, s.C()}, inputs.dout),
      out(context, dtype, {s.B, s.T, s.C()}),
      lse(context, DType::f32, {s.B, s.NH, s.T}),
      dqkv(context, dtype, {s.B, s.T, s.row()}),
      scratch(context, DType::u8, {std::max<std::int64_t>(scratch_bytes, 1)}) {}

AttentionForward AttentionTensors::forward(AttentionMethod method) const {
    return {.out = out,
            .lse = lse,
            .qkv = qkv,
            .num_heads = shape.NH,
            .num_kv_heads = shape.NKV,
            .scale = shape.scale(),
            .method = method};
}

AttentionBackward AttentionTensors::backward(AttentionMethod method) const {
    return {.dqkv = dqkv,
            .scratch = scratch,
            .dout = dout,
            .out = out,
            .lse = lse,
            .qkv = qkv,
            .num_heads = shape.NH,
            .num_kv_heads = shape.NKV,
            .scale = shape.scale(),
            .method = method};
}

}  // namespace ingot::test
