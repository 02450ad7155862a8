#include "model/param_table.h"

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Assigns offsets: tensors with decay first, in the order of the table otherwise.
void lay_out_groups(ParamTable& table) {
    for (std::size_t g = 0; g < table.groups.size(); ++g) {
        ParamGroup& group = table.groups[g];
        for (const bool decay : {true, false}) {
            for (std::size_t i = 0; i < table.params.size(); ++i) {
                ParamSpec& spec = table.params[i];
                if (spec.group != static_cast<int>(g) || spec.decay != decay) continue;
                spec.offset = group.numel;
                group.numel += round_up(spec.numel(), ParamTable::kAlignElements);
                group.params.push_back(static_cast<int>(i));
            }
            if (decay) group.decay_numel = group.numel;
        }
    }
}

template <class View>
View view_of(const View& flat, const ParamSpec& spec) {
    const View part = flat.slice(spec.offset, spec.offset + spec.numel());
    return spec.shape.size() == 2 ? part.view({spec.shape[0], spec.shape[1]}) : part;
}

class TableBuilder {
  public:
    explicit TableBuilder(const DecoderConfig& config) : config_(config) {}

    void begin_group(const std::string& name) { table_.groups.push_back({name, 0, 0, {}}); }

    ParamSpec& matrix(const std::string& name,
                      const std::string& hf_name,
                      std::int64_t rows,
                      std::int64_t columns) {
        ParamSpec& spec = add(name, hf_name, {rows, columns});
        spec.init = Init::normal;
        spec.init_std = config_.init_std;
        spec.decay = true;
        return spec;
    }

    ParamSpec& vector(const std::string& name, const std::string& hf_name, std::int64_t size) {
        return add(name, hf_name, {size});
    }

    ParamTable finish() {
        lay_out_groups(table_);
        return std::move(table_);
    }

  private:
    ParamSpec& add(const std::string& name,
                   const std::string& hf_name,
                   std::vector<std::int64_t> shape) {
        ParamSpec spec;
        spec.name = name;
        spec.hf_name = hf_name;
        spec.stored_rows = shape[0];
        spec.shape = std::move(shape);
        spec.group = static_cast<int>(table_.groups.size()) - 1;
        table_.params.push_back(std::move(spec));
        return table_.params.back();
    }

    const DecoderConfig& config_;
    ParamTable table_;
};

void add_block(TableBuilder& builder, const DecoderConfig& c, int layer) {
    const std::string ours = str("h", layer, ".");
    const std::string theirs = str("transformer.h.", layer, ".");
    // Two residual branches a block end in a projection; GPT-2 shrinks those by the root of their
    // number (Radford et al. 2019, section 2.3).
    const float projection_std = c.init_std / std::sqrt(2.0F * static_cast<float>(c.num_layers));
    const auto linear = [&](const char* name, const char* hf, std::int64_t out, std::int64_t in) {
        ParamSpec& spec = builder.matrix(ours + name + "w", theirs + hf + ".weight", out, in);
        spec.hf_layout = HfLayout::transposed;
        const bool is_projection = std::string(name).find("proj") != std::string::npos;
        if (is_projection) spec.init_std = projection_std;
        builder.vector(ours + name + "b", theirs + hf + ".bias", out);
    };
    const auto norm = [&](const char* name, const char* hf) {
        builder.vector(ours + name + "w", theirs + hf + ".weight", c.channels).init = Init::ones;
        builder.vector(ours + name + "b", theirs + hf + ".bias", c.channels);
    };
    builder.begin_group(str("h", layer));
    norm("ln1", "ln_1");
    linear("qkv", "attn.c_attn", c.qkv_channels(), c.channels);
    linear("attproj", "attn.c_proj", c.channels, c.attention_channels());
    norm("ln2", "ln_2");
    linear("fc", "mlp.c_fc", c.ffn_channels, c.channels);
    linear("fcproj", "mlp.c_proj", c.channels, c.ffn_channels);
}

}  // namespace

std::int64_t ParamSpec::numel() const {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape)
        count *= dim;
    return count;
}

std::int64_t ParamSpec::stored_numel() const {
    return numel() / shape[0] * stored_rows;
}

std::vector<std::int64_t> ParamSpec::hf_shape() const {
    std::vector<std::int64_t> result = shape;
    result[0] = stored_rows;
    if (hf_layout == HfLayout::transposed) std::reverse(result.begin(), result.end());
    return result;
}

std::int64_t ParamTable::num_parameters() const {
    std::int64_t count = 0;
    for (const ParamSpec& spec : params)
        count += spec.stored_numel();
    return count;
}

const ParamSpec& ParamTable::find(const std::string& name) const {
    for (const ParamSpec& spec : params) {
        if (spec.name == name) return spec;
    }
    fail("model.param", "parameter table: no tensor is called ", name);
}

ParamTable make_gpt2_param_table(const DecoderConfig& c) {
    validate(c);
    TableBuilder builder(c);
    builder.begin_group("embedding");
    builder.matrix("wte", "transformer.wte.weight", c.padded_vocab_size(), c.channels).stored_rows =
        c.vocab_size;
    builder.matrix("wpe", "transformer.wpe.weight", c.context_length, c.channels);
    for (int layer = 0; layer < c.num_layers; ++layer)
        add_block(builder, c, layer);
    builder.begin_group("final_norm");
    builder.vector("lnfw", "transformer.ln_f.weight", c.channels).init = Init::ones;
    builder.vector("lnfb", "transformer.ln_f.bias", c.channels);
    return builder.finish();
}

Tensor view_param(Tensor flat, const ParamSpec& spec) {
    return view_of(flat, spec);
}
ConstTensor view_param(ConstTensor flat, const ParamSpec& spec) {
    return view_of(flat, spec);
}

}  // namespace ingot
