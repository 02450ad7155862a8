// GPT-2 in Hugging Face's form: config.json of GPT2LMHeadModel to and from a DecoderConfig.
// What the Decoder does not do is refused by name: another activation than gelu_new, scaling of the
// attention by the layer's index, cross attention, an untied head.
// Errors: hf.open, hf.json, hf.unsupported, hf.missing_key, model.config.
#pragma once

#include <string>

#include "model/decoder_config.h"

namespace ingot {

// Reads DIR/config.json.
DecoderConfig read_gpt2_config(const std::string& folder);

// eos_token_id of DIR/config.json; -1 when there is none, or a list of them.
std::int64_t read_gpt2_eos_id(const std::string& folder);

// The text of a config.json in the form of GPT2LMHeadModel. dtype: "float32" or
// "bfloat16"; eos_id < 0: unknown, null in the file.
std::string write_gpt2_config(const DecoderConfig& config,
                              const std::string& dtype,
                              std::int64_t eos_id);

}  // namespace ingot
