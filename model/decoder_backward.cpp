// The backward pass, the forward pass in mirrored order. `dresidual` is the gradient that runs
// along the residual stream; each norm's backward adds to it in place.
#include "engine/core/op_range.h"
#include "kernels/attention.h"
#include "kernels/bias_gradient.h"
#include "kernels/embedding.h"
#include "kernels/layernorm.h"
#include "kernels/lm_head.h"
#include "kernels/matmul.h"
#include "model/decoder.h"

namespace ingot {

Tensor Decoder::loss_and_backward(Stream stream,
                                  GroupHooks& hooks,
                                  ConstTensor order,
                                  ConstTensor targets) {
    ENSURE(options_.with_backward, "model.no_backward",
           "Decoder: backward was asked of a Decoder planned for evaluation only");
    ENSURE(options_.attention != AttentionMethod::cudnn || is_planned_batch(), "model.batch",
           "Decoder: backward of a batch of ", B_, " x ", T_,
           " tokens with cuDNN's attention, which is planned for exactly ", options_.B, " x ",
           options_.T, "; use model.attention=auto");
    // 3. Head, loss and final norm.
    head_backward(stream, hooks, targets);

    // 2. The blocks, last to first.
    for (int layer = config_.num_layers - 1; layer >= 0; --layer) {
        block_backward(stream, hooks, layer);
    }

    // 1. The embedding. The head has written dwte in this pass: add to it.
    const TraceRange range("embedding backward");
    const GroupHooks::Backward embedding = hooks.before_backward(stream, 0);
    embedding_backward(stream, {.dwte = view_param(embedding.grads, wte_),
                                .dwpe = view_param(embedding.grads, wpe_),
                                .scratch = scratch_.tensor(plan_.op_scratch),
                                .dout = scratch(plan_.dresidual).view({B_, T_, config_.channels}),
                                .order = order,
                                .accumulate_dwte = true,
                                .accumulate_dwpe = embedding.accumulate});
    hooks.after_backward(stream, 0, true);
    return saved(plan_.losses);
}

// The losses, and the first use of the tied embedding's gradient.
void Decoder::head_backward(Stream stream, GroupHooks& hooks, ConstTensor targets) {
    const TraceRange range("head and loss");
    const Tensor dlnf = scratch(plan_.dlnf);
    const GroupHooks::Backward head = hooks.before_backward(stream, 0);
    lm_head_loss(stream, {.losses = saved(plan_.losses),
                          .dinp = dlnf,
                          .dweight = view_param(head.grads, wte_),
                          .logits = scratch_.tensor(plan_.logits),
                          .inp = saved(plan_.lnf),
                          .weight = view_param(head.params, wte_),
                          .targets = targets.view({B_ * T_}),
                          .vocab_size = config_.vocab_size,
                          .accumulate = head.accumulate});
    hooks.after_backward(stream, 0, false);

    const GroupHooks::Backward norm = hooks.before_backward(stream, final_norm_group());
    layernorm_backward(stream, {.dinp = scratch(plan_.dresidual),
                                .dweight = view_param(norm.grads, lnfw_),
                                .dbias = view_param(norm.grads, lnfb_),
                                .scratch = scratch_.tensor(plan_.op_scratch),
                                .dout = dlnf,
                                .dresidual = ConstTensor{},
                                .inp = saved(plan_.residual_final),
                                .weight = view_param(norm.params, lnfw_),
                                .mean = saved(plan_.lnf_mean),
                                .rstd = saved(plan_.lnf_rstd),
                                .accumulate = norm.accumulate});
    hooks.after_backward(stream, final_norm_group(), true);
}

void Decoder::block_backward(Stream stream, GroupHooks& hooks, int layer) {
    const TraceRange range(block_names_[static_cast<std::size_t>(layer)].backward);
    const Block t = block_tensors(layer, plan_.redo);
    const GroupHooks::Backward group = hooks.before_backward(stream, layer + 1);
    const auto p = block_params(group.params, layer);
    const auto d = block_params(group.grads, layer);
    recompute(stream, t, p);
    mlp_backward(stream, t, p, d, group.accumulate);
    attention_half_backward(stream, t, p, d, group.accumulate);
    hooks.after_backward(stream, layer + 1, true);
}

void Decoder::mlp_backward(Stream stream,
                           const Block& t,
                           const BlockParams<ConstTensor>& p,
                           const BlockParams<Tensor>& d,
                           bool accumulate) {
    const TraceRange range("mlp backward");
    const Tensor dresidual = scratch(plan_.dresidual);
    const Tensor dfch = scratch(plan_.dfch);
    const Tensor dln2 = scratch(plan_.dln);
    const Tensor op_scratch = scratch_.tensor(plan_.op_scratch);

    bias_gradient(
        stream,
        {.dbias = d.fcprojb, .scratch = op_scratch, .dout = dresidual, .accumulate = accumulate});
    matmul_wgrad(
        stream,
        {.dweight = d.fcprojw, .dout = dresidual, .inp = t.fch_gelu, .accumulate = accumulate});
    matmul_dgrad(stream, {.dinp = dfch, .dout = dresidual, .weight = p.fcprojw, .pre_gelu = t.fch});

    bias_gradient(stream,
                  {.dbias = d.fcb, .scratch = op_scratch, .dout = dfch, .accumulate = accumulate});
    matmul_wgrad(stream, {.dweight = d.fcw, .dout = dfch, .inp = t.ln2, .accumulate = accumulate});
    matmul_dgrad(stream, {.dinp = dln2, .dout = dfch, .weight = p.fcw, .pre_gelu = ConstTensor{}});

    layernorm_backward(stream, {.dinp = dresidual,
                                .dweight = d.ln2w,
                                .dbias = d.ln2b,
                                .scratch = op_scratch,
                                .dout = dln2,
                                .dresidual = dresidual,
                                .inp = t.residual2,
                                .weight = p.ln2w,
                                .mean = t.ln2_mean,
                                .rstd = t.ln2_rstd,
                                .accumulate = accumulate});
}

void Decoder::attention_half_backward(Stream stream,
                                      const Block& t,
                                      const BlockParams<ConstTensor>& p,
                                      const BlockParams<Tensor>& d,
                                      bool accumulate) {
    const TraceRange range("attention backward");
    const Tensor dresidual = scratch(plan_.dresidual);
    const Tensor datty = scratch(plan_.datty);
    const Tensor dqkv = scratch(plan_.dqkv);
    const Tensor dln1 = scratch(plan_.dln);
    const Tensor op_scratch = scratch_.tensor(plan_.op_scratch);

    bias_gradient(
        stream,
        {.dbias = d.attprojb, .scratch = op_scratch, .dout = dresidual, .accumulate = accumulate});
    matmul_wgrad(
        stream,
        {.dweight = d.attprojw, .dout = dresidual, .inp = t.atty, .accumulate = accumulate});
    matmul_dgrad(
        stream,
        {.dinp = datty, .dout = dresidual, .weight = p.attprojw, .pre_gelu = ConstTensor{}});

    const std::int64_t attention_channels = config_.attention_channels();
    const std::int64_t qkv_channels = config_.qkv_channels();
    attention_backward(stream, {.dqkv = dqkv.view({B_, T_, qkv_channels}),
                                .scratch = op_scratch,
                                .dout = datty.view({B_, T_, attention_channels}),
                                .out = t.atty.view({B_, T_, attention_channels}),
                                .lse = t.lse.view({B_, config_.num_heads, T_}),
                                .qkv = t.qkv.view({B_, T_, qkv_channels}),
                                .num_heads = config_.num_heads,
                                .num_kv_heads = config_.num_kv_heads,
                                .scale = config_.attention_scale(),
                                .method = attention_method(),
                                .deterministic = options_.deterministic});

    bias_gradient(stream,
                  {.dbias = d.qkvb, .scratch = op_scratch, .dout = dqkv, .accumulate = accumulate});
    matmul_wgrad(stream, {.dweight = d.qkvw, .dout = dqkv, .inp = t.ln1, .accumulate = accumulate});
    matmul_dgrad(stream, {.dinp = dln1, .dout = dqkv, .weight = p.qkvw, .pre_gelu = ConstTensor{}});

    layernorm_backward(stream, {.dinp = dresidual,
                                .dweight = d.ln1w,
                                .dbias = d.ln1b,
                                .scratch = op_scratch,
                                .dout = dln1,
                                .dresidual = dresidual,
                                .inp = t.residual1,
                                .weight = p.ln1w,
                                .mean = t.ln1_mean,
                                .rstd = t.ln1_rstd,
                                .accumulate = accumulate});
}

}  // namespace ingot
