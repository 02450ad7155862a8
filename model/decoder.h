// The one Decoder: forward and backward of a decoder-only transformer on one rank.
//
//   x = wte[ids] + wpe
//   for each block:  x = x + attproj(attention(qkv(ln1(x))))     x = x + fcproj(gelu(fc(ln2(x))))
//   logits = lnf(x) @ wte^T,  loss = cross entropy
//
// A residual sum is computed by the norm that reads it (one pass over memory instead of two), so a
// block hands on two tensors: residual2 and the MLP's output, which the next norm adds.
//
// Parameters and gradients come from GroupHooks; the Decoder keeps none of them. Activations live
// in two arenas sized by model/activation_plan.h. Nothing here allocates or synchronizes after the
// constructor.
//
// cuDNN's attention is prepared for batches of exactly the planned B and T, which training and
// validation have; the forward pass of another batch (a text sample) takes the automatic method.
#pragma once

#include "engine/core/arena.h"
#include "model/activation_plan.h"
#include "model/group_hooks.h"
#include "model/param_table.h"

namespace ingot {

class Decoder {
  public:
    Decoder(Context& context, const DecoderConfig& config, const ActivationOptions& options);
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    const DecoderConfig& config() const { return config_; }
    const ActivationOptions& options() const { return options_; }
    const ParamTable& params() const { return params_; }
    const ActivationPlan& plan() const { return plan_; }

    // Runs the blocks and the final norm. inputs: (B, T) i32 with B * T and T at most what was
    // planned (model.batch).
    void forward(Stream stream, GroupHooks& hooks, ConstTensor inputs);

    // The three ends of a forward pass. Each needs forward() of the same batch just before.
    // losses: (B * T) f32, nats, 0 where the target is masked; valid until the next call.
    Tensor loss(Stream stream, GroupHooks& hooks, ConstTensor targets);
    // Adds the gradient of the *sum* of the losses to the hooks' gradients. LM head, loss and their
    // gradients are one op (kernels/lm_head.h). With cuDNN's attention the batch must be of the
    // planned B and T (model.batch). order: (B * T, 2) i32, the inputs of forward() as
    // engine/core/token_order.h sorts them.
    Tensor loss_and_backward(Stream stream,
                             GroupHooks& hooks,
                             ConstTensor order,
                             ConstTensor targets);
    // Logits of `num_rows` positions from `row` on (row = b * T + t): (num_rows, Vp), dtype of the
    // model. num_rows at most the planned logits rows (model.batch).
    Tensor logits(Stream stream, GroupHooks& hooks, std::int64_t row, std::int64_t num_rows);

  private:
    // The tensors of one block, of the rows in use.
    struct Block {
        Tensor residual1, ln1, ln1_mean, ln1_rstd, qkv, atty, lse;
        Tensor residual2, ln2, ln2_mean, ln2_rstd, fch, fch_gelu;
    };
    // The tensors of one block's group: specs, parameters or gradients.
    template <class View>
    struct BlockParams {
        View ln1w, ln1b, qkvw, qkvb, attprojw, attprojb, ln2w, ln2b, fcw, fcb, fcprojw, fcprojb;
    };
    template <class View>
    BlockParams<View> block_params(View flat, int layer) const;

    int final_norm_group() const { return config_.num_layers + 1; }
    void set_batch(ConstTensor inputs);
    bool is_planned_batch() const { return B_ == options_.B && T_ == options_.T; }
    AttentionMethod attention_method() const;
    Tensor saved(int region) const;  // the rows in use
    Tensor scratch(int region) const;
    Block block_tensors(int layer, const BlockRegions& shared) const;

    void block_forward(Stream stream, GroupHooks& hooks, int layer, ConstTensor residual2);
    void attention_half(Stream stream,
                        const Block& t,
                        const BlockParams<ConstTensor>& p,
                        Tensor proj_out);
    void mlp_half(Stream stream, const Block& t, const BlockParams<ConstTensor>& p, Tensor mlp_out);
    void recompute(Stream stream, const Block& t, const BlockParams<ConstTensor>& p);
    void head_backward(Stream stream, GroupHooks& hooks, ConstTensor targets);
    void block_backward(Stream stream, GroupHooks& hooks, int layer);
    void mlp_backward(Stream stream,
                      const Block& t,
                      const BlockParams<ConstTensor>& p,
                      const BlockParams<Tensor>& d,
                      bool accumulate);
    void attention_half_backward(Stream stream,
                                 const Block& t,
                                 const BlockParams<ConstTensor>& p,
                                 const BlockParams<Tensor>& d,
                                 bool accumulate);

    DecoderConfig config_;
    ActivationOptions options_;
    ParamTable params_;
    // Where in params_ the tensors are, looked up by name once.
    std::vector<BlockParams<const ParamSpec*>> block_specs_;
    struct BlockNames {
        std::string forward, backward;  // "block 3 forward"
    };
    std::vector<BlockNames> block_names_;  // of the ranges that a profiler shows
    const ParamSpec& wte_;
    const ParamSpec& wpe_;
    const ParamSpec& lnfw_;
    const ParamSpec& lnfb_;
    ActivationPlan plan_;
    Arena saved_;
    Arena scratch_;
    std::int64_t B_ = 0;  // of the current batch
    std::int64_t T_ = 0;
};

}  // namespace ingot
