// What the forward pass saves for the backward pass, and what is scratch.
//
// Saved per block (N = B * T rows):
//   recompute   saved tensors                                                recomputed in backward
//   none        residual1 ln1 qkv atty lse residual2 ln2 fch fch_gelu        -
//   light       residual1 qkv atty lse residual2 fch                         ln1 ln2 fch_gelu
//   block       residual1                                                    everything else
// and the norms' mean and rstd. Tensors that are not saved exist once and are shared by all blocks.
// Scratch is packed by lifetime into one arena (engine/core/arena.h).
#pragma once

#include <vector>

#include "engine/core/arena.h"
#include "kernels/attention_method.h"
#include "model/decoder_config.h"

namespace ingot {

enum class Recompute { none, light, block };

const char* name_of(Recompute recompute);
Recompute recompute_from_name(const std::string& name);  // throws model.recompute

struct ActivationOptions {
    std::int64_t B = 1;  // micro-batch, the largest that forward will be called with
    std::int64_t T = 1;  // sequence length, the longest
    Recompute recompute = Recompute::none;
    DType dtype = DType::f32;
    Device device = Device::cpu;
    bool with_backward = true;  // false: evaluation only
    AttentionMethod attention = AttentionMethod::automatic;
    bool deterministic = true;     // false: cuDNN's attention may add in any order
    std::int64_t logits_rows = 0;  // rows of logits at a time; 0 = default_logits_rows
};

// Regions (indices into the arenas) of one block; -1 where the tensor is not there.
struct BlockRegions {
    int residual1 = -1, ln1 = -1, ln1_mean = -1, ln1_rstd = -1;
    int qkv = -1, atty = -1, lse = -1;
    int residual2 = -1, ln2 = -1, ln2_mean = -1, ln2_rstd = -1;
    int fch = -1, fch_gelu = -1;
};

struct ActivationPlan {
    ArenaPlan saved{"activations"};
    ArenaPlan scratch{"scratch"};
    std::vector<BlockRegions> blocks;  // regions of `saved`
    BlockRegions work;                 // regions of `scratch`: forward of what is not saved
    BlockRegions redo;                 // regions of `scratch`: what backward recomputes

    // Regions of `saved`.
    int residual_final = -1, lnf = -1, lnf_mean = -1, lnf_rstd = -1, losses = -1;
    // Regions of `scratch`.
    int proj_out = -1, mlp_out = -1, logits = -1;
    int redo_proj_out = -1;  // proj_out of the recomputation
    int dlnf = -1, dresidual = -1, dfch = -1, dln = -1, datty = -1, dqkv = -1;
    int op_scratch = -1;  // bytes for the op that runs; ops of one stream follow each other
};

// The attention of one block for the planned batch, and what is to be prepared for it.
AttentionShape attention_shape(const DecoderConfig& config, const ActivationOptions& options);
AttentionPreparation attention_preparation(const DecoderConfig& config,
                                           const ActivationOptions& options);

// Rows so that a chunk of logits has at most 16 MiB on the CPU and 512 MiB on the GPU, there a
// power of two (whole tiles of the matmuls) unless one chunk holds the batch; at least 1, at most
// N.
std::int64_t default_logits_rows(const DecoderConfig& config, const ActivationOptions& options);

ActivationPlan plan_activations(const DecoderConfig& config, const ActivationOptions& options);

}  // namespace ingot
