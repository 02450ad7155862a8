// Causal flash attention on tensor cores: bf16, head sizes 64 and 128, grouped-query heads, any T.
// The contract is that of kernels/attention.h, whose dispatcher chooses between this path and the
// general one. CUDA only (what it covers is known in every build). Needs 16-byte aligned tensors
// and scale > 0.
//
// The kernels need dynamic shared memory; a configuration is chosen that fits `shared_limit` bytes
// a block (0: what the device offers). 99 KB (sm_86, sm_89) is enough for every configuration's
// smallest form; sm_80 has 163 KB, sm_90 227 KB.
#pragma once

#include "kernels/attention.h"
#include "kernels/attention_flash_plan.h"

namespace ingot::cuda {

// Whether the path covers a shape; depends on dtype and head size alone.
inline bool flash_attention_supports(const AttentionShape& shape) {
    return shape.dtype == DType::bf16 && (shape.head_size == 64 || shape.head_size == 128);
}

void flash_attention_forward(Stream stream, const AttentionForward& args, int shared_limit = 0);
void flash_attention_backward(Stream stream, const AttentionBackward& args, int shared_limit = 0);

}  // namespace ingot::cuda
