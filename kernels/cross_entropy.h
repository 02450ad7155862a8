// Softmax and cross entropy over a vocabulary, fused with its gradient.
//
//   p_v = exp(logits_v - max) / sum over v < V of exp(logits_v - max)
//   loss = -log p_target                      (0 when the target is masked)
//   dlogits_v = p_v - [v = target], v < V     (0 when the target is masked, and for v >= V)
//
// The gradient is that of the *sum* of the losses: 1 / (number of valid targets) is applied later,
// in the optimizer, so that accumulation and ranks need no averaging. Columns V..Vp-1 pad the
// vocabulary: their logits are ignored whatever they hold. logits is overwritten by dlogits when
// `write_dlogits` is set, otherwise left alone. fp32 inside; one thread order, deterministic.
// Precondition: a target is kMaskedTarget or in 0..V-1; the loader has checked it.
// Errors: cross_entropy.shape, cross_entropy.dtype, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

inline constexpr int kMaskedTarget =
    -100;  // the value Hugging Face uses for "do not train on this"

struct CrossEntropy {
    Tensor losses;            // (N) f32, nats
    Tensor logits;            // (N, Vp) f32 or bf16; becomes dlogits
    ConstTensor targets;      // (N) i32
    std::int64_t vocab_size;  // V <= Vp
    bool write_dlogits;
};
void cross_entropy(Stream stream, const CrossEntropy& args);

namespace cpu {
void cross_entropy(const CrossEntropy& args);
}  // namespace cpu

namespace cuda {
void cross_entropy(Stream stream, const CrossEntropy& args);
}  // namespace cuda

}  // namespace ingot
