// cuDNN's fused attention behind the contract of kernels/attention.h: bf16, causal, grouped-query
// heads, the engine's layouts (strides into the packed qkv), lse as cuDNN's statistics. Only a
// build with INGOT_CUDNN defines these; call them inside `if constexpr (kHasCudnn)`
// (docs/adr/0015-cudnn-attention.md).
//
// The library is loaded when it is first asked for, so that a program starts without it. Plans are
// built by prepare_cudnn_attention(), one a shape and pass, and live in the context with one
// workspace for all of them; a call whose shape has no plan is refused. With `deterministic` no
// engine that cuDNN notes as nondeterministic is taken.
//
// Errors: attention.cudnn_library (cannot be loaded), attention.cudnn (a call of cuDNN failed or it
// has no plan for the shape), attention.not_prepared, attention.alignment.
#pragma once

#include <string>

#include "kernels/attention.h"

namespace ingot {

struct AttentionPreparation;

namespace cuda {

std::string load_cudnn();  // "cuDNN 9.14.0"
void prepare_cudnn_attention(Context& context, const AttentionPreparation& preparation);
std::int64_t cudnn_attention_workspace_bytes(Context& context);
void cudnn_attention_forward(Stream stream, const AttentionForward& args);
void cudnn_attention_backward(Stream stream, const AttentionBackward& args);

}  // namespace cuda
}  // namespace ingot
