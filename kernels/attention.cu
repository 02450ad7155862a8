// Runs the attention path that the call's method names; automatic is flash attention where it
// covers the call, else the general path, which covers every one.
#include "kernels/attention.h"
#include "kernels/attention_cudnn.h"
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

// What the call's method comes to.
template <class Args>
AttentionMethod method_of(const Args& args, bool is_aligned_call) {
    if (args.method != AttentionMethod::automatic) return args.method;
    return takes_flash(args, is_aligned_call) ? AttentionMethod::own : AttentionMethod::general;
}

[[noreturn]] void fail_without_cudnn(const char* op) {
    fail("attention.cudnn_build", op,
         ": method cudnn, but this build holds no cuDNN; run `tools/setup.sh venv cudnn` and build "
         "again, or use another method");
}

}  // namespace

void attention_forward(Stream stream, const AttentionForward& args) {
    if (args.qkv.numel() == 0) return;
    switch (method_of(args, are_aligned(args.qkv, args.out))) {
        case AttentionMethod::own:
            return flash_attention_forward(stream, args);
        case AttentionMethod::cudnn:
            if constexpr (kHasCudnn) {
                return cudnn_attention_forward(stream, args);
            } else {
                fail_without_cudnn("attention_forward");
            }
        default:
            return general_attention_forward(stream, args);
    }
}

void attention_backward(Stream stream, const AttentionBackward& args) {
    if (args.qkv.numel() == 0) return;
    switch (method_of(args, are_aligned(args.qkv, args.dqkv, args.out, args.dout, args.scratch))) {
        case AttentionMethod::own:
            return flash_attention_backward(stream, args);
        case AttentionMethod::cudnn:
            if constexpr (kHasCudnn) {
                return cudnn_attention_backward(stream, args);
            } else {
                fail_without_cudnn("attention_backward");
            }
        default:
            return general_attention_backward(stream, args);
    }
}

}  // namespace ingot::cuda
