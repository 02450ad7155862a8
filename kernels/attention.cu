// Chooses the attention path: flash attention where it covers the shape, else the general one,
// which covers every shape.
#include "kernels/attention.h"
#include "kernels/attention_flash.h"
#include "kernels/attention_general.h"
#include "kernels/device/launch.cuh"

namespace ingot::cuda {
namespace {

// A negative scale and unaligned views are rare and legal; the general path takes them.
template <class Args>
bool takes_flash(const Args& args, bool is_aligned_call) {
    const std::int64_t slots = args.num_heads + 2 * std::int64_t{args.num_kv_heads};
    const AttentionShape shape{args.qkv.dim(0),
                               args.qkv.dim(1),
                               args.num_heads,
                               args.num_kv_heads,
                               static_cast<int>(args.qkv.dim(2) / slots),
                               args.qkv.dtype};
    return flash_attention_supports(shape) && args.scale > 0.0F && is_aligned_call;
}

}  // namespace

void attention_forward(Stream stream, const AttentionForward& args) {
    if (args.qkv.numel() == 0) return;
    if (takes_flash(args, are_aligned(args.qkv, args.out))) {
        flash_attention_forward(stream, args);
    } else {
        general_attention_forward(stream, args);
    }
}

void attention_backward(Stream stream, const AttentionBackward& args) {
    if (args.qkv.numel() == 0) return;
    if (takes_flash(args, are_aligned(args.qkv, args.dqkv, args.out, args.dout, args.scratch))) {
        flash_attention_backward(stream, args);
    } else {
        general_attention_backward(stream, args);
    }
}

}  // namespace ingot::cuda
