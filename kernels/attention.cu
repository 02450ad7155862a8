// Chooses the attention path: the general one covers every shape.
#include "kernels/attention.h"
#include "kernels/attention_general.h"

namespace ingot::cuda {

void attention_forward(Stream stream, const AttentionForward& args) {
    if (args.qkv.numel() == 0) return;
    general_attention_forward(stream, args);
}

void attention_backward(Stream stream, const AttentionBackward& args) {
    if (args.qkv.numel() == 0) return;
    general_attention_backward(stream, args);
}

std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
    return general_attention_backward_scratch_bytes(shape);
}

}  // namespace ingot::cuda
