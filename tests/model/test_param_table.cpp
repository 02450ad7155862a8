// Goal: the table holds GPT-2, every tensor once, groups laid out as promised. Method: counts known
// from the paper and from transformers, property checks over presets.
#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "model/param_table.h"

using namespace ingot;

TEST_CASE("param table: GPT-2's parameter counts are those of transformers") {
    CHECK(make_gpt2_param_table(preset("gpt2-124m")).num_parameters() == 124439808);
    CHECK(make_gpt2_param_table(preset("gpt2-51m")).num_parameters() == 51475968);
    CHECK(make_gpt2_param_table(preset("gpt2-350m")).num_parameters() == 354823168);
    CHECK(make_gpt2_param_table(preset("gpt2-774m")).num_parameters() == 774030080);
    CHECK(make_gpt2_param_table(preset("gpt2-1558m")).num_parameters() == 1557611200);
}

TEST_CASE("param table: groups hold every tensor once, aligned, decay first, without overlap") {
    for (const std::string& name : preset_names()) {
        const DecoderConfig config = preset(name);
        const ParamTable table = make_gpt2_param_table(config);
        CHECK(table.groups.size() == static_cast<std::size_t>(config.num_layers) + 2);
        std::set<int> seen;
        for (std::size_t g = 0; g < table.groups.size(); ++g) {
            std::int64_t end = 0;
            for (const int index : table.groups[g].params) {
                const ParamSpec& spec = table.params[static_cast<std::size_t>(index)];
                CHECK(spec.group == static_cast<int>(g));
                CHECK(spec.offset >= end);
                CHECK(spec.offset % ParamTable::kAlignElements == 0);
                CHECK(spec.decay == (spec.shape.size() == 2));
                CHECK(spec.decay == (spec.offset < table.groups[g].decay_numel));
                end = spec.offset + spec.numel();
                CHECK(seen.insert(index).second);
            }
            CHECK(end <= table.groups[g].numel);
        }
        CHECK(seen.size() == table.params.size());
    }
}

TEST_CASE("param table: names and shapes are GPT-2's, projections start smaller") {
    const DecoderConfig config = preset("gpt2-124m");
    const ParamTable table = make_gpt2_param_table(config);
    const ParamSpec& qkv = table.find("h3.qkvw");
    CHECK(qkv.hf_name == "transformer.h.3.attn.c_attn.weight");
    CHECK(qkv.hf_shape() == std::vector<std::int64_t>{768, 2304});
    CHECK(qkv.init_std == doctest::Approx(0.02));
    CHECK(table.find("h0.attprojw").init_std == doctest::Approx(0.02 / std::sqrt(24.0)));
    CHECK(table.find("h11.fcprojw").init_std == doctest::Approx(0.02 / std::sqrt(24.0)));
    const ParamSpec& wte = table.find("wte");
    CHECK(wte.shape == std::vector<std::int64_t>{50304, 768});
    CHECK(wte.hf_shape() == std::vector<std::int64_t>{50257, 768});
    CHECK(wte.stored_numel() == 50257 * 768);
    CHECK_THROWS_WITH_AS(table.find("h99.qkvw"), "parameter table: no tensor is called h99.qkvw",
                         Error);
}

TEST_CASE("view_param: a view has the tensor's shape and place") {
    const ParamTable table = make_gpt2_param_table(preset("gpt2-tiny"));
    std::vector<float> flat(static_cast<std::size_t>(table.groups[1].numel));
    const Tensor group = make_tensor(flat.data(), DType::f32, {table.groups[1].numel}, Device::cpu);
    const Tensor fcw = view_param(group, table.find("h0.fcw"));
    CHECK(fcw.shape_string() == "(512, 128) f32");
    CHECK(fcw.data == flat.data() + table.find("h0.fcw").offset);
}
