#include "model/activation_plan.h"

#include <algorithm>

#include "kernels/bias_gradient.h"
#include "kernels/embedding.h"
#include "kernels/layernorm.h"

namespace ingot {
namespace {

// Points of a micro-step, in execution order; all blocks share the points of a block.
enum Point : int {
    kForwardNorm1,
    kForwardQkv,
    kForwardAttention,
    kForwardProjection,
    kForwardNorm2,
    kForwardFc,
    kForwardFcProjection,
    kForwardFinalNorm,
    kHead,
    kBackwardFinalNorm,
    kRecompute,
    kBackwardFcProjection,
    kBackwardFc,
    kBackwardNorm2,
    kBackwardProjection,
    kBackwardAttention,
    kBackwardQkv,
    kBackwardNorm1,
    kBackwardEmbedding
};

struct Planner {
    const DecoderConfig& config;
    const ActivationOptions& options;
    ActivationPlan& plan;
    std::int64_t N = options.B * options.T;

    int rows(ArenaPlan& arena, const std::string& name, std::int64_t columns, Lifetime life = {}) {
        return arena.add(name, options.dtype, {N, columns}, life);
    }
    int statistics(ArenaPlan& arena, const std::string& name, Lifetime life = {}) {
        return arena.add(name, DType::f32, {N}, life);
    }
    int lse(ArenaPlan& arena, const std::string& name, Lifetime life = {}) {
        return arena.add(name, DType::f32, {options.B * config.num_heads * options.T}, life);
    }

    void block(int layer) {
        const auto name = [layer](const char* tensor) { return str("h", layer, ".", tensor); };
        const std::int64_t C = config.channels;
        ArenaPlan& saved = plan.saved;
        BlockRegions r;
        r.residual1 = rows(saved, name("residual1"), C);
        if (options.recompute != Recompute::block) {
            r.ln1_mean = statistics(saved, name("ln1_mean"));
            r.ln1_rstd = statistics(saved, name("ln1_rstd"));
            r.qkv = rows(saved, name("qkv"), config.qkv_channels());
            r.atty = rows(saved, name("atty"), config.attention_channels());
            r.lse = lse(saved, name("lse"));
            r.residual2 = rows(saved, name("residual2"), C);
            r.ln2_mean = statistics(saved, name("ln2_mean"));
            r.ln2_rstd = statistics(saved, name("ln2_rstd"));
            r.fch = rows(saved, name("fch"), config.ffn_channels);
        }
        if (options.recompute == Recompute::none) {
            r.ln1 = rows(saved, name("ln1"), C);
            r.ln2 = rows(saved, name("ln2"), C);
            r.fch_gelu = rows(saved, name("fch_gelu"), config.ffn_channels);
        }
        plan.blocks.push_back(r);
    }

    // Shared tensors of the forward pass. residual2 lives until the next block has added to it.
    void work_regions() {
        const std::int64_t C = config.channels;
        ArenaPlan& scratch = plan.scratch;
        BlockRegions& r = plan.work;
        if (options.recompute == Recompute::none) return;
        r.ln1 = rows(scratch, "ln1", C, {kForwardNorm1, kForwardQkv});
        r.ln2 = rows(scratch, "ln2", C, {kForwardNorm2, kForwardFc});
        r.fch_gelu =
            rows(scratch, "fch_gelu", config.ffn_channels, {kForwardFc, kForwardFcProjection});
        if (options.recompute == Recompute::light) return;
        r.ln1_mean = statistics(scratch, "ln1_mean", {kForwardNorm1, kForwardNorm1});
        r.ln1_rstd = statistics(scratch, "ln1_rstd", {kForwardNorm1, kForwardNorm1});
        r.qkv = rows(scratch, "qkv", config.qkv_channels(), {kForwardQkv, kForwardAttention});
        r.atty = rows(scratch, "atty", config.attention_channels(),
                      {kForwardAttention, kForwardProjection});
        r.lse = lse(scratch, "lse", {kForwardAttention, kForwardAttention});
        r.residual2 = rows(scratch, "residual2", C, {kForwardNorm1, kForwardFinalNorm});
        r.ln2_mean = statistics(scratch, "ln2_mean", {kForwardNorm2, kForwardNorm2});
        r.ln2_rstd = statistics(scratch, "ln2_rstd", {kForwardNorm2, kForwardNorm2});
        r.fch = rows(scratch, "fch", config.ffn_channels, {kForwardFc, kForwardFc});
    }

    // Tensors that the backward pass computes again.
    void redo_regions() {
        const std::int64_t C = config.channels;
        ArenaPlan& scratch = plan.scratch;
        BlockRegions& r = plan.redo;
        if (options.recompute == Recompute::none) return;
        r.ln1 = rows(scratch, "redo.ln1", C, {kRecompute, kBackwardQkv});
        r.ln2 = rows(scratch, "redo.ln2", C, {kRecompute, kBackwardFc});
        r.fch_gelu = rows(scratch, "redo.fch_gelu", config.ffn_channels,
                          {kRecompute, kBackwardFcProjection});
        if (options.recompute == Recompute::light) return;
        r.ln1_mean = statistics(scratch, "redo.ln1_mean", {kRecompute, kBackwardNorm1});
        r.ln1_rstd = statistics(scratch, "redo.ln1_rstd", {kRecompute, kBackwardNorm1});
        r.qkv = rows(scratch, "redo.qkv", config.qkv_channels(), {kRecompute, kBackwardAttention});
        r.atty = rows(scratch, "redo.atty", config.attention_channels(),
                      {kRecompute, kBackwardAttention});
        r.lse = lse(scratch, "redo.lse", {kRecompute, kBackwardAttention});
        r.residual2 = rows(scratch, "redo.residual2", C, {kRecompute, kBackwardNorm2});
        r.ln2_mean = statistics(scratch, "redo.ln2_mean", {kRecompute, kBackwardNorm2});
        r.ln2_rstd = statistics(scratch, "redo.ln2_rstd", {kRecompute, kBackwardNorm2});
        r.fch = rows(scratch, "redo.fch", config.ffn_channels, {kRecompute, kBackwardFcProjection});
        plan.redo_proj_out = rows(scratch, "redo.proj_out", C, {kRecompute, kRecompute});
    }

    void gradients() {
        const std::int64_t C = config.channels;
        ArenaPlan& scratch = plan.scratch;
        plan.dlnf = rows(scratch, "dlnf", C, {kHead, kBackwardFinalNorm});
        plan.dresidual = rows(scratch, "dresidual", C, {kBackwardFinalNorm, kBackwardEmbedding});
        plan.dfch =
            rows(scratch, "dfch", config.ffn_channels, {kBackwardFcProjection, kBackwardFc});
        plan.dln = rows(scratch, "dln", C, {kBackwardFc, kBackwardNorm1});
        plan.datty = rows(scratch, "datty", config.attention_channels(),
                          {kBackwardProjection, kBackwardAttention});
        plan.dqkv =
            rows(scratch, "dqkv", config.qkv_channels(), {kBackwardAttention, kBackwardQkv});
        plan.op_scratch = scratch.add("op_scratch", DType::u8, {op_scratch_bytes()},
                                      {kBackwardFinalNorm, kBackwardEmbedding});
    }

    std::int64_t op_scratch_bytes() const {
        const Device device = options.device;
        return std::max({
            layernorm_backward_scratch_bytes(device, N, config.channels),
            bias_gradient_scratch_bytes(device, N, config.channels),
            bias_gradient_scratch_bytes(device, N, config.qkv_channels()),
            bias_gradient_scratch_bytes(device, N, config.ffn_channels),
            attention_backward_scratch_bytes(device, attention_shape(config, options),
                                             options.attention),
            embedding_backward_scratch_bytes(device, N, config.channels),
        });
    }
};

}  // namespace

const char* name_of(Recompute recompute) {
    switch (recompute) {
        case Recompute::none:
            return "none";
        case Recompute::light:
            return "light";
        case Recompute::block:
            return "block";
    }
    return "invalid";
}

Recompute recompute_from_name(const std::string& name) {
    for (const Recompute r : {Recompute::none, Recompute::light, Recompute::block}) {
        if (name == name_of(r)) return r;
    }
    fail("model.recompute", "model.recompute = ", name, "; use none, light or block");
}

AttentionShape attention_shape(const DecoderConfig& config, const ActivationOptions& options) {
    return {options.B,
            options.T,
            config.num_heads,
            config.num_kv_heads,
            static_cast<int>(config.head_size),
            options.dtype};
}

AttentionPreparation attention_preparation(const DecoderConfig& config,
                                           const ActivationOptions& options) {
    return {.method = options.attention,
            .shape = attention_shape(config, options),
            .scale = config.attention_scale(),
            .with_backward = options.with_backward,
            .deterministic = options.deterministic};
}

std::int64_t default_logits_rows(const DecoderConfig& config, const ActivationOptions& options) {
    const std::int64_t budget_bytes = options.device == Device::cuda ? 512 << 20 : 16 << 20;
    const std::int64_t row_bytes = config.padded_vocab_size() * size_of(options.dtype);
    const std::int64_t all = options.B * options.T;
    std::int64_t rows = std::clamp<std::int64_t>(budget_bytes / row_bytes, 1, all);
    if (options.device == Device::cpu || rows == all) return rows;
    while ((rows & (rows - 1)) != 0)  // a power of two: whole tiles of the matmuls
        rows &= rows - 1;
    return rows;
}

ActivationPlan plan_activations(const DecoderConfig& config, const ActivationOptions& options) {
    ENSURE(options.B > 0 && options.T > 0, "model.batch", "activations for B = ", options.B,
           ", T = ", options.T, "; both must be above 0");
    ENSURE(options.T <= config.context_length, "model.context", "sequence length ", options.T,
           " is above the model's context_length = ", config.context_length);
    ActivationPlan plan;
    Planner planner{config, options, plan};
    const std::int64_t C = config.channels;

    for (int layer = 0; layer < config.num_layers; ++layer)
        planner.block(layer);
    plan.residual_final = planner.rows(plan.saved, "residual_final", C);
    plan.lnf = planner.rows(plan.saved, "lnf", C);
    plan.lnf_mean = planner.statistics(plan.saved, "lnf_mean");
    plan.lnf_rstd = planner.statistics(plan.saved, "lnf_rstd");
    plan.losses = planner.statistics(plan.saved, "losses");

    planner.work_regions();
    plan.proj_out = planner.rows(plan.scratch, "proj_out", C, {kForwardProjection, kForwardNorm2});
    plan.mlp_out = planner.rows(plan.scratch, "mlp_out", C, {kForwardNorm1, kForwardFinalNorm});
    const std::int64_t logits_rows =
        options.logits_rows > 0 ? options.logits_rows : default_logits_rows(config, options);
    plan.logits = plan.scratch.add("logits", options.dtype,
                                   {logits_rows, config.padded_vocab_size()}, {kHead, kHead});
    if (options.with_backward) {
        planner.redo_regions();
        planner.gradients();
    }
    plan.saved.place();
    plan.scratch.place();
    return plan;
}

}  // namespace ingot
