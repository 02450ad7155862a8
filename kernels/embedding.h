// Token and position embedding.
//
//   forward   out[b, t, :] = wte[ids[b, t], :] + wpe[t, :]
//   backward  dwte[v, :] (+)= sum over (b, t) with ids[b, t] = v of dout[b, t, :]
//             dwpe[t, :] (+)= sum over b of dout[b, t, :]; rows t >= T get 0 when overwriting
//
// Deterministic: each gradient row is summed in the order of (b, t), in fp32; on CUDA the row of an
// id with many entries in parts of up to 31, which are then added in their order (where they are
// cut depends on the ids of the batch). When overwriting, rows of dwte whose id does not occur
// (padded rows included) are set to 0. A model without learned positions passes null views for wpe
// and dwpe. Preconditions: 0 <= ids < rows of wte, and order holds each position once, sorted;
// whoever reads the ids has seen to both (data/, golden_check), the op does not check them. Errors:
// embedding.shape, embedding.dtype, embedding.scratch, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct EmbeddingForward {
    Tensor out;       // (B, T, C)
    ConstTensor ids;  // (B, T) i32
    ConstTensor wte;  // (Vp, C), dtype of out
    ConstTensor wpe;  // (max T, C), dtype of out; or a null view
};
void embedding_forward(Stream stream, const EmbeddingForward& args);

struct EmbeddingBackward {
    Tensor dwte;           // (Vp, C) f32 or bf16
    Tensor dwpe;           // (max T, C), dtype of dwte; or a null view
    Tensor scratch;        // (embedding_backward_scratch_bytes) u8
    ConstTensor dout;      // (B, T, C) f32 or bf16
    ConstTensor order;     // (B * T, 2) i32: TokenEntry of engine/core/token_order.h
    bool accumulate_dwte;  // += instead of =; true after the head has written the tied dwte
    bool accumulate_dwpe;  // += instead of =
};
void embedding_backward(Stream stream, const EmbeddingBackward& args);
// num_tokens = B * T.
std::int64_t embedding_backward_scratch_bytes(Device device,
                                              std::int64_t num_tokens,
                                              std::int64_t C);

namespace cpu {
void embedding_forward(const EmbeddingForward& args);
void embedding_backward(const EmbeddingBackward& args);
}  // namespace cpu

namespace cuda {
void embedding_forward(Stream stream, const EmbeddingForward& args);
void embedding_backward(Stream stream, const EmbeddingBackward& args);
}  // namespace cuda

}  // namespace ingot
