// The tensors of one call of attention, forward and backward, and the arguments made of them.
#pragma once

#include <vector>

#include "kernels/attention.h"
#include "tests/support/attention_oracle.h"
#include "tests/support/test_tensor.h"

namespace ingot::test {

struct AttentionInputs {
    std::vector<float> qkv, dout;
};
// qkv in [-size, size), dout in [-1, 1); the same for the same shape.
AttentionInputs attention_inputs(const AttentionSize& s, float size);

struct AttentionTensors {
    // Outputs are poisoned; scratch, where nothing is said, suffices for
    // every method.
    AttentionTensors(Context& context,
                     DType dtype,
                     const AttentionSize& s,
                     const AttentionInputs& inputs);
    AttentionTensors(Context& context,
                     DType dtype,
                     const AttentionSize& s,
                     const AttentionInputs& inputs,
                     std::int64_t scratch_bytes);

    AttentionForward forward(AttentionMethod method = AttentionMethod::automatic) const;
    AttentionBackward backward(AttentionMethod method = AttentionMethod::automatic) const;

    AttentionSize shape;
    TestTensor qkv, dout, out, lse, dqkv, scratch;
};

}  // namespace ingot::test
