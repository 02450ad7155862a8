#include "model/decoder_config.h"

#include <cmath>

namespace ingot {
namespace {

struct Preset {
    const char* name;
    int num_layers;
    int num_heads;
    std::int64_t channels;
    std::int64_t context_length;
};

// From 124M on: Radford et al., "Language models are unsupervised multitask learners" (2019), table
// 2. The smaller ones are for small data.
constexpr Preset kPresets[] = {
    {"gpt2-tiny", 4, 4, 128, 256},     {"gpt2-51m", 8, 8, 512, 1024},
    {"gpt2-124m", 12, 12, 768, 1024},  {"gpt2-350m", 24, 16, 1024, 1024},
    {"gpt2-774m", 36, 20, 1280, 1024}, {"gpt2-1558m", 48, 25, 1600, 1024},
};
constexpr std::int64_t kGpt2VocabSize = 50257;

}  // namespace

std::int64_t DecoderConfig::padded_vocab_size() const {
    return (vocab_size + kVocabPadding - 1) / kVocabPadding * kVocabPadding;
}

float DecoderConfig::attention_scale() const {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
}

void validate(const DecoderConfig& c) {
    const auto require_positive = [](std::int64_t value, const char* name) {
        ENSURE(value > 0, "model.config", "model: ", name, " = ", value, ", must be above 0");
    };
    require_positive(c.vocab_size, "vocab_size");
    require_positive(c.context_length, "context_length");
    require_positive(c.num_layers, "num_layers");
    require_positive(c.num_heads, "num_heads");
    require_positive(c.num_kv_heads, "num_kv_heads");
    require_positive(c.channels, "channels");
    require_positive(c.ffn_channels, "ffn_channels");
    ENSURE(c.num_heads % c.num_kv_heads == 0, "model.config", "model: num_heads = ", c.num_heads,
           " is not a multiple of num_kv_heads = ", c.num_kv_heads);
    ENSURE(c.head_size >= 8 && c.head_size <= 256 && c.head_size % 8 == 0, "model.config",
           "model: head_size = ", c.head_size, " (channels = ", c.channels,
           ", num_heads = ", c.num_heads, "), must be a multiple of 8 from 8 to 256");
    ENSURE(std::isfinite(c.norm_eps) && c.norm_eps > 0.0F, "model.config",
           "model: norm_eps = ", c.norm_eps, ", must be above 0");
}

DecoderConfig preset(const std::string& name) {
    for (const Preset& p : kPresets) {
        if (name != p.name) continue;
        DecoderConfig config;
        config.vocab_size = kGpt2VocabSize;
        config.context_length = p.context_length;
        config.num_layers = p.num_layers;
        config.num_heads = p.num_heads;
        config.num_kv_heads = p.num_heads;
        config.channels = p.channels;
        config.head_size = p.channels / p.num_heads;
        config.ffn_channels = 4 * p.channels;
        return config;
    }
    std::string names;
    for (const std::string& known : preset_names())
        names += (names.empty() ? "" : ", ") + known;
    fail("model.preset", "model.preset = ", name, " is unknown; use one of ", names);
}

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const Preset& p : kPresets)
        names.emplace_back(p.name);
    return names;
}

}  // namespace ingot
