// The forward pass, in the order of the paper.
#include "engine/core/op_range.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "model/decoder.h"

namespace ingot {

void Decoder::forward(Stream stream, GroupHooks& hooks, ConstTensor inputs) {
    set_batch(inputs);

    // 1. Token and position embedding: the first block's residual stream.
    {
        const TraceRange range("embedding forward");
        const Tensor first = saved(plan_.blocks.front().residual1);
        const ConstTensor embedding = hooks.before_forward(stream, 0);
        embedding_forward(stream, {.out = first.view({B_, T_, config_.channels}),
                                   .ids = inputs,
                                   .wte = view_param(embedding, wte_),
                                   .wpe = view_param(embedding, wpe_)});
        hooks.after_forward(stream, 0);
    }

    // 2. The blocks. Each but the first begins by adding what the one before left behind.
    Tensor residual2;
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        block_forward(stream, hooks, layer, residual2);
        residual2 = block_tensors(layer, plan_.work).residual2;
    }

    // 3. The last residual sum and the final norm.
    const TraceRange range("final norm forward");
    const ConstTensor final_norm = hooks.before_forward(stream, final_norm_group());
    residual_layernorm_forward(stream, {.residual = saved(plan_.residual_final),
                                        .out = saved(plan_.lnf),
                                        .mean = saved(plan_.lnf_mean),
                                        .rstd = saved(plan_.lnf_rstd),
                                        .inp1 = residual2,
                                        .inp2 = scratch(plan_.mlp_out),
                                        .weight = view_param(final_norm, lnfw_),
                                        .bias = view_param(final_norm, lnfb_),
                                        .eps = config_.norm_eps});
    hooks.after_forward(stream, final_norm_group());
}

void Decoder::block_forward(Stream stream, GroupHooks& hooks, int layer, ConstTensor residual2) {
    const TraceRange range(block_names_[static_cast<std::size_t>(layer)].forward);
    const Block t = block_tensors(layer, plan_.work);
    const auto p = block_params(hooks.before_forward(stream, layer + 1), layer);
    const Tensor mlp_out = scratch(plan_.mlp_out);
    if (layer == 0) {
        layernorm_forward(stream, {.out = t.ln1,
                                   .mean = t.ln1_mean,
                                   .rstd = t.ln1_rstd,
                                   .inp = t.residual1,
                                   .weight = p.ln1w,
                                   .bias = p.ln1b,
                                   .eps = config_.norm_eps});
    } else {
        residual_layernorm_forward(stream, {.residual = t.residual1,
                                            .out = t.ln1,
                                            .mean = t.ln1_mean,
                                            .rstd = t.ln1_rstd,
                                            .inp1 = residual2,
                                            .inp2 = mlp_out,
                                            .weight = p.ln1w,
                                            .bias = p.ln1b,
                                            .eps = config_.norm_eps});
    }
    attention_half(stream, t, p, scratch(plan_.proj_out));
    mlp_half(stream, t, p, mlp_out);
    hooks.after_forward(stream, layer + 1);
}

// ln1 -> residual2 and ln2.
void Decoder::attention_half(Stream stream,
                             const Block& t,
                             const BlockParams<ConstTensor>& p,
                             Tensor proj_out) {
    const TraceRange range("attention");
    matmul_forward(
        stream,
        {.out = t.qkv, .pre_gelu = Tensor{}, .inp = t.ln1, .weight = p.qkvw, .bias = p.qkvb});
    attention_forward(stream, {.out = t.atty.view({B_, T_, config_.attention_channels()}),
                               .lse = t.lse.view({B_, config_.num_heads, T_}),
                               .qkv = t.qkv.view({B_, T_, config_.qkv_channels()}),
                               .num_heads = config_.num_heads,
                               .num_kv_heads = config_.num_kv_heads,
                               .scale = config_.attention_scale(),
                               .method = attention_method()});
    matmul_forward(stream, {.out = proj_out,
                            .pre_gelu = Tensor{},
                            .inp = t.atty,
                            .weight = p.attprojw,
                            .bias = p.attprojb});
    residual_layernorm_forward(stream, {.residual = t.residual2,
                                        .out = t.ln2,
                                        .mean = t.ln2_mean,
                                        .rstd = t.ln2_rstd,
                                        .inp1 = t.residual1,
                                        .inp2 = proj_out,
                                        .weight = p.ln2w,
                                        .bias = p.ln2b,
                                        .eps = config_.norm_eps});
}

// ln2 -> mlp_out; a null mlp_out stops before the projection (recomputation needs no more).
void Decoder::mlp_half(Stream stream,
                       const Block& t,
                       const BlockParams<ConstTensor>& p,
                       Tensor mlp_out) {
    const TraceRange range("mlp");
    matmul_forward(
        stream,
        {.out = t.fch_gelu, .pre_gelu = t.fch, .inp = t.ln2, .weight = p.fcw, .bias = p.fcb});
    if (!mlp_out) return;
    matmul_forward(stream, {.out = mlp_out,
                            .pre_gelu = Tensor{},
                            .inp = t.fch_gelu,
                            .weight = p.fcprojw,
                            .bias = p.fcprojb});
}

void Decoder::recompute(Stream stream, const Block& t, const BlockParams<ConstTensor>& p) {
    if (options_.recompute == Recompute::none) return;
    const TraceRange range("recompute");
    layernorm_forward(stream, {.out = t.ln1,
                               .mean = t.ln1_mean,
                               .rstd = t.ln1_rstd,
                               .inp = t.residual1,
                               .weight = p.ln1w,
                               .bias = p.ln1b,
                               .eps = config_.norm_eps});
    if (options_.recompute == Recompute::block) {
        attention_half(stream, t, p, scratch(plan_.redo_proj_out));
        mlp_half(stream, t, p, Tensor{});
        return;
    }
    layernorm_forward(stream, {.out = t.ln2,
                               .mean = t.ln2_mean,
                               .rstd = t.ln2_rstd,
                               .inp = t.residual2,
                               .weight = p.ln2w,
                               .bias = p.ln2b,
                               .eps = config_.norm_eps});
    gelu_forward(stream, {.out = t.fch_gelu, .inp = t.fch});
}

}  // namespace ingot
