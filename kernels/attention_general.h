// The general attention path of the CUDA backend: head sizes 8 to 256 in multiples of 8, f32 and
// bf16, any T, any alignment; CUDA cores and fp32 throughout. The contract is that of
// kernels/attention.h, whose dispatcher in attention.cu chooses between the paths. At most 99 KB of
// shared memory a block.
#pragma once

#include "kernels/attention.h"

namespace ingot::cuda {

void general_attention_forward(Stream stream, const AttentionForward& args);
void general_attention_backward(Stream stream, const AttentionBackward& args);
inline std::int64_t general_attention_backward_scratch_bytes(const AttentionShape& shape) {
    return shape.B * shape.num_heads * shape.T * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace ingot::cuda
