// Which implementation computes the attention of a run: chosen and checked once, before memory is
// allocated, and carried in the arguments of every call (kernels/attention.h).
// Errors: attention.method (does not apply to this device, dtype or head size),
// attention.cudnn_build, and those of kernels/attention_cudnn.h.
#pragma once

#include <string>

#include "kernels/attention.h"

namespace ingot {

const char* name_of(AttentionMethod method);                          // auto, own, general, cudnn
AttentionMethod attention_method_from_name(const std::string& name);  // throws attention.method

struct AttentionChoice {
    AttentionMethod method = AttentionMethod::general;  // never automatic
    std::string why;                                    // for the log
};
// What `wanted` comes to for a shape on a device that need not be there. own and cudnn are refused
// where they do not apply.
AttentionChoice choose_attention(AttentionMethod wanted,
                                 Device device,
                                 const AttentionShape& shape);

// Refuses cudnn in a build without it and on a machine where its library cannot be loaded; else
// returns what the log should say of the library, "" for the engine's own methods.
std::string require_attention_library(AttentionMethod method);

struct AttentionPreparation {
    AttentionMethod method;
    AttentionShape shape;
    float scale;
    bool with_backward;
    bool deterministic;
};
// Does what must not happen inside a step: refuses a method that does not apply, and for cudnn
// builds the plans of the shape and allocates their workspace. The same shape again costs a
// look-up.
void prepare_attention(Context& context, const AttentionPreparation& preparation);

// Bytes of the workspace that prepare_attention() has allocated.
std::int64_t attention_workspace_bytes(Context& context);

// The same before there is a device: what cuDNN 9.19 asks for on sm_90 with `deterministic`, and at
// most that on sm_80. Its deterministic backward pass keeps a (T, T) matrix of bf16 for every head
// of the batch; the other one keeps fp32 sums of dq.
std::int64_t estimate_attention_workspace_bytes(const AttentionPreparation& preparation);

}  // namespace ingot
