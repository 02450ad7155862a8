#include "model/decoder.h"

#include "engine/core/op_range.h"
#include "kernels/lm_head.h"
#include "kernels/matmul.h"

namespace ingot {
namespace {

// The first `rows` of what a region holds: a region is planned for the largest batch.
Tensor rows_in_use(const Tensor& region, std::int64_t used, std::int64_t planned) {
    const std::int64_t rows = region.dim(0) / planned * used;
    return region.slice(0, rows);
}

}  // namespace

Decoder::Decoder(Context& context, const DecoderConfig& config, const ActivationOptions& options)
    : config_(config),
      options_(options),
      params_(make_gpt2_param_table(config)),
      wte_(params_.find("wte")),
      wpe_(params_.find("wpe")),
      lnfw_(params_.find("lnfw")),
      lnfb_(params_.find("lnfb")),
      plan_(plan_activations(config, options)),
      saved_(context, plan_.saved),
      scratch_(context, plan_.scratch) {
    for (int layer = 0; layer < config.num_layers; ++layer) {
        const auto find = [&](const char* name) {
            return &params_.find(str("h", layer, ".", name));
        };
        block_specs_.push_back({find("ln1w"), find("ln1b"), find("qkvw"), find("qkvb"),
                                find("attprojw"), find("attprojb"), find("ln2w"), find("ln2b"),
                                find("fcw"), find("fcb"), find("fcprojw"), find("fcprojb")});
        block_names_.push_back(
            {str("block ", layer, " forward"), str("block ", layer, " backward")});
    }
    prepare_attention(context, attention_preparation(config, options));
}

void Decoder::set_batch(ConstTensor inputs) {
    ENSURE(inputs.num_dims == 2, "model.batch", "Decoder: inputs are ", inputs.shape_string(),
           ", must be (B, T) i32");
    const std::int64_t B = inputs.dim(0);
    const std::int64_t T = inputs.dim(1);
    ENSURE(B > 0 && T > 0 && T <= options_.T && B * T <= options_.B * options_.T, "model.batch",
           "Decoder: batch of ", B, " x ", T, " tokens, planned for at most ", options_.B, " x ",
           options_.T);
    B_ = B;
    T_ = T;
}

AttentionMethod Decoder::attention_method() const {
    const bool needs_planned = options_.attention == AttentionMethod::cudnn;
    return needs_planned && !is_planned_batch() ? AttentionMethod::automatic : options_.attention;
}

Tensor Decoder::saved(int region) const {
    return rows_in_use(saved_.tensor(region), B_ * T_, options_.B * options_.T);
}

Tensor Decoder::scratch(int region) const {
    return rows_in_use(scratch_.tensor(region), B_ * T_, options_.B * options_.T);
}

template <class View>
Decoder::BlockParams<View> Decoder::block_params(View flat, int layer) const {
    const BlockParams<const ParamSpec*>& specs = block_specs_[static_cast<std::size_t>(layer)];
    const auto get = [&](const ParamSpec* spec) { return view_param(flat, *spec); };
    return {get(specs.ln1w),     get(specs.ln1b),     get(specs.qkvw),    get(specs.qkvb),
            get(specs.attprojw), get(specs.attprojb), get(specs.ln2w),    get(specs.ln2b),
            get(specs.fcw),      get(specs.fcb),      get(specs.fcprojw), get(specs.fcprojb)};
}
template Decoder::BlockParams<Tensor> Decoder::block_params(Tensor, int) const;
template Decoder::BlockParams<ConstTensor> Decoder::block_params(ConstTensor, int) const;

Decoder::Block Decoder::block_tensors(int layer, const BlockRegions& shared) const {
    const BlockRegions& own = plan_.blocks[static_cast<std::size_t>(layer)];
    const auto get = [&](int BlockRegions::*region) {
        return own.*region >= 0 ? saved(own.*region) : scratch(shared.*region);
    };
    return {
        get(&BlockRegions::residual1), get(&BlockRegions::ln1),       get(&BlockRegions::ln1_mean),
        get(&BlockRegions::ln1_rstd),  get(&BlockRegions::qkv),       get(&BlockRegions::atty),
        get(&BlockRegions::lse),       get(&BlockRegions::residual2), get(&BlockRegions::ln2),
        get(&BlockRegions::ln2_mean),  get(&BlockRegions::ln2_rstd),  get(&BlockRegions::fch),
        get(&BlockRegions::fch_gelu)};
}

Tensor Decoder::loss(Stream stream, GroupHooks& hooks, ConstTensor targets) {
    const TraceRange range("head and loss");
    const Tensor losses = saved(plan_.losses);
    const ConstTensor embedding = hooks.before_forward(stream, 0);
    lm_head_loss(stream, {.losses = losses,
                          .dinp = Tensor{},
                          .dweight = Tensor{},
                          .logits = scratch_.tensor(plan_.logits),
                          .inp = saved(plan_.lnf),
                          .weight = view_param(embedding, wte_),
                          .targets = targets.view({B_ * T_}),
                          .vocab_size = config_.vocab_size,
                          .accumulate = false});
    hooks.after_forward(stream, 0);
    return losses;
}

Tensor Decoder::logits(Stream stream, GroupHooks& hooks, std::int64_t row, std::int64_t num_rows) {
    const TraceRange range("head");
    const Tensor out = scratch_.tensor(plan_.logits);
    ENSURE(num_rows <= out.dim(0), "model.batch", "Decoder: logits of ", num_rows,
           " rows, planned for at most ", out.dim(0));
    const ConstTensor embedding = hooks.before_forward(stream, 0);
    matmul_forward(stream, {.out = out.slice(0, num_rows),
                            .pre_gelu = Tensor{},
                            .inp = saved(plan_.lnf).slice(row, row + num_rows),
                            .weight = view_param(embedding, wte_),
                            .bias = ConstTensor{}});
    hooks.after_forward(stream, 0);
    return out.slice(0, num_rows);
}

}  // namespace ingot
