// Language-model head and loss as one op over chunks of rows, so that the (N, Vp) logits never
// exist as a whole. For each chunk of rows:
//
//   logits = inp @ weight^T;  losses, dlogits = cross entropy;
//   dinp = dlogits @ weight;  dweight (+)= dlogits^T @ inp
//
// A composition of matmul and cross_entropy on the caller's stream: it has no .cu of its own. The
// chunk is the number of rows of `logits`; the result does not depend on it beyond the rounding of
// dweight's partial sums. Errors: lm_head.shape, and those of matmul and cross_entropy.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct LmHeadLoss {
    Tensor losses;            // (N) f32, nats, 0 where masked
    Tensor dinp;              // (N, C); or a null view: loss only
    Tensor dweight;           // (Vp, C) f32 or bf16; null exactly when dinp is
    Tensor logits;            // (chunk, Vp) scratch, dtype of inp, chunk >= 1
    ConstTensor inp;          // (N, C), the final norm's output
    ConstTensor weight;       // (Vp, C)
    ConstTensor targets;      // (N) i32, kMaskedTarget allowed
    std::int64_t vocab_size;  // V <= Vp
    bool accumulate;          // dweight: += instead of =
};
void lm_head_loss(Stream stream, const LmHeadLoss& args);

}  // namespace ingot
