// The shape of a decoder-only transformer. A family (model/families/) is a reader that fills one of
// these from a config.json; a preset is one of these by name.
//
// The Decoder of this release has GPT-2's parts: LayerNorm, learned positions, GELU (tanh), biases
// everywhere, and a head tied to the token embedding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/dtype.h"

namespace ingot {

struct DecoderConfig {
    std::int64_t vocab_size = 0;      // V, what the tokenizer has; the table is padded inside
    std::int64_t context_length = 0;  // rows of the position table, the longest sequence
    int num_layers = 0;               // L
    int num_heads = 0;                // NH, query heads
    int num_kv_heads = 0;             // NKV, divides NH
    std::int64_t channels = 0;        // C
    std::int64_t head_size = 0;       // HS; GPT-2: C / NH
    std::int64_t ffn_channels = 0;    // F, width of the MLP; GPT-2: 4 C
    float norm_eps = 1e-5F;
    float init_std = 0.02F;

    // Vp: V rounded up to kVocabPadding, so that matmuls are aligned. Padded rows start at zero,
    // get a zero gradient and are never exported.
    std::int64_t padded_vocab_size() const;
    std::int64_t qkv_channels() const { return (num_heads + 2 * num_kv_heads) * head_size; }
    std::int64_t attention_channels() const { return num_heads * head_size; }
    float attention_scale() const;  // 1 / sqrt(HS)

    static constexpr std::int64_t kVocabPadding = 128;
};

// Throws model.config naming the value and the rule that it breaks.
void validate(const DecoderConfig& config);

// gpt2-tiny, gpt2-51m, -124m, -350m, -774m, -1558m. GPT-2's own vocabulary (50257) and
// context (1024; tiny: 256). Throws model.preset listing the names.
DecoderConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace ingot
