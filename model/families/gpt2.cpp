#include "model/families/gpt2.h"

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ENSURE(file.good(), "hf.open", path,
           " cannot be opened; model.hf must name a folder with a config.json");
    std::ostringstream text;
    text << file.rdbuf();
    try {
        return Json::parse(text.str());
    } catch (const Json::exception& error) {
        fail("hf.json", path, " is not JSON: ", error.what());
    }
}

template <class T>
T get(const Json& json, const std::string& path, const char* key) {
    ENSURE(json.contains(key), "hf.missing_key", path, " has no ", key);
    try {
        return json.at(key).get<T>();
    } catch (const Json::exception&) {
        fail("hf.json", path, ": ", key, " = ", json.at(key).dump(), " has the wrong type");
    }
}

template <class T>
T get_or(const Json& json, const std::string& path, const char* key, T fallback) {
    return !json.contains(key) || json.at(key).is_null() ? fallback : get<T>(json, path, key);
}

void refuse_unsupported(const Json& json, const std::string& path) {
    const std::string type = get<std::string>(json, path, "model_type");
    ENSURE(type == "gpt2", "hf.unsupported", path, ": model_type = ", type,
           " is not supported; this release loads gpt2");
    const std::string activation =
        get_or<std::string>(json, path, "activation_function", "gelu_new");
    ENSURE(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "hf.unsupported", path,
           ": activation_function = ", activation, ", only gelu_new is supported");
    for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
        ENSURE(!get_or(json, path, key, false), "hf.unsupported", path, ": ", key,
               " = true is not supported");
    }
    for (const char* key : {"scale_attn_weights", "tie_word_embeddings"}) {
        ENSURE(get_or(json, path, key, true), "hf.unsupported", path, ": ", key,
               " = false is not supported");
    }
}

}  // namespace

DecoderConfig read_gpt2_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    const Json json = read_json(path);
    ENSURE(json.is_object(), "hf.json", path, " is not a JSON object");
    refuse_unsupported(json, path);
    DecoderConfig config;
    config.vocab_size = get<std::int64_t>(json, path, "vocab_size");
    config.context_length = get<std::int64_t>(json, path, "n_positions");
    config.num_layers = get<int>(json, path, "n_layer");
    config.num_heads = get<int>(json, path, "n_head");
    config.num_kv_heads = config.num_heads;
    config.channels = get<std::int64_t>(json, path, "n_embd");
    ENSURE(config.num_heads > 0 && config.channels % config.num_heads == 0, "model.config", path,
           ": n_embd = ", config.channels, " is not a multiple of n_head = ", config.num_heads);
    config.head_size = config.channels / config.num_heads;
    config.ffn_channels = get_or<std::int64_t>(json, path, "n_inner", 4 * config.channels);
    config.norm_eps = get_or<float>(json, path, "layer_norm_epsilon", 1e-5F);
    config.init_std = get_or<float>(json, path, "initializer_range", 0.02F);
    validate(config);
    return config;
}

std::int64_t read_gpt2_eos_id(const std::string& folder) {
    const Json json = read_json(folder + "/config.json");
    const auto eos = json.find("eos_token_id");
    return eos != json.end() && eos->is_number_integer() ? eos->get<std::int64_t>() : -1;
}

std::string write_gpt2_config(const DecoderConfig& config,
                              const std::string& dtype,
                              std::int64_t eos_id) {
    const Json eos = eos_id >= 0 ? Json(eos_id) : Json();
    Json json;
    json["architectures"] = {"GPT2LMHeadModel"};
    json["model_type"] = "gpt2";
    json["activation_function"] = "gelu_new";
    json["vocab_size"] = config.vocab_size;
    json["n_positions"] = config.context_length;
    json["n_embd"] = config.channels;
    json["n_layer"] = config.num_layers;
    json["n_head"] = config.num_heads;
    json["n_inner"] = nullptr;
    if (config.ffn_channels != 4 * config.channels) json["n_inner"] = config.ffn_channels;
    // Written so that the nearest double of the float reads back: 1e-05, not 9.99999974e-06.
    std::ostringstream eps;
    eps << config.norm_eps;
    json["layer_norm_epsilon"] = std::stod(eps.str());
    std::ostringstream init_std;
    init_std << config.init_std;
    json["initializer_range"] = std::stod(init_std.str());
    json["scale_attn_weights"] = true;
    json["scale_attn_by_inverse_layer_idx"] = false;
    json["tie_word_embeddings"] = true;
    json["attn_pdrop"] = 0.0;
    json["embd_pdrop"] = 0.0;
    json["resid_pdrop"] = 0.0;
    json["bos_token_id"] = eos;
    json["eos_token_id"] = eos;
    json["dtype"] = dtype;
    json["torch_dtype"] = dtype;
    json["use_cache"] = true;
    return json.dump(2) + "\n";
}

}  // namespace ingot
