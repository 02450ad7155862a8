// Goal: presets are the published models, bad shapes are refused with their values.
#include <doctest/doctest.h>

#include "model/decoder_config.h"
#include "model/flops.h"

using namespace ingot;

TEST_CASE("preset: an unknown name is refused and the known ones are listed") {
    CHECK_THROWS_WITH_AS(preset("gpt3"),
                         "model.preset = gpt3 is unknown; use one of gpt2-tiny, gpt2-51m, "
                         "gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1558m",
                         Error);
    for (const std::string& name : preset_names())
        CHECK_NOTHROW(validate(preset(name)));
}

TEST_CASE("decoder config: the vocabulary is padded to 128") {
    DecoderConfig config = preset("gpt2-124m");
    CHECK(config.padded_vocab_size() == 50304);
    config.vocab_size = 4096;
    CHECK(config.padded_vocab_size() == 4096);
    config.vocab_size = 4097;
    CHECK(config.padded_vocab_size() == 4224);
    CHECK(config.attention_scale() == 0.125F);
}

TEST_CASE("decoder config: a shape that cannot be is refused with its value") {
    const auto refused = [](auto&& change, const char* text) {
        DecoderConfig config = preset("gpt2-tiny");
        change(config);
        CHECK_THROWS_WITH_AS(validate(config), doctest::Contains(text), Error);
    };
    refused([](DecoderConfig& c) { c.vocab_size = 0; }, "vocab_size = 0, must be above 0");
    refused([](DecoderConfig& c) { c.num_layers = -1; }, "num_layers = -1");
    refused([](DecoderConfig& c) { c.num_kv_heads = 3; },
            "num_heads = 4 is not a multiple of num_kv_heads = 3");
    refused([](DecoderConfig& c) { c.head_size = 12; }, "head_size = 12");
    refused([](DecoderConfig& c) { c.head_size = 264; }, "multiple of 8 from 8 to 256");
    refused([](DecoderConfig& c) { c.norm_eps = 0.0F; }, "norm_eps = 0");
}

TEST_CASE("flops: 6 N + 12 L C T a token") {
    const DecoderConfig config = preset("gpt2-124m");
    const double flops = train_flops_per_token(config, 124439808, 1024);
    CHECK(flops == doctest::Approx(6.0 * 124439808 + 12.0 * 12 * 768 * 1024));
}
