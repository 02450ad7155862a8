// Goal: a config.json of Hugging Face becomes the right DecoderConfig and back, what the Decoder
// cannot do is refused by name.
#include <doctest/doctest.h>

#include "model/families/gpt2.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

using namespace ingot;

namespace {

// A folder with this config.json.
class Folder {
  public:
    explicit Folder(const std::string& config) { test::write_all(folder_ / "config.json", config); }
    const std::string& path() const { return folder_.path(); }

  private:
    test::TempFolder folder_;
};

const std::string kGood =
    R"("model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2,
       "n_head": 4, "layer_norm_epsilon": 1e-06)";

}  // namespace

TEST_CASE("gpt2: the golden model's config.json is read") {
    const DecoderConfig c = read_gpt2_config(test::source_dir() + "/tests/golden/gpt2-tiny");
    CHECK(c.vocab_size == 256);
    CHECK(c.context_length == 64);
    CHECK(c.num_layers == 2);
    CHECK(c.num_heads == 4);
    CHECK(c.channels == 64);
    CHECK(c.head_size == 16);
    CHECK(c.ffn_channels == 256);
    CHECK(c.norm_eps == 1e-5F);
}

TEST_CASE("gpt2: layer_norm_epsilon and n_inner of the file are used") {
    const DecoderConfig c = read_gpt2_config(Folder("{" + kGood + R"(, "n_inner": 100})").path());
    CHECK(c.norm_eps == 1e-6F);
    CHECK(c.ffn_channels == 100);
}

TEST_CASE("gpt2: what is written reads back to the same model") {
    DecoderConfig c = preset("gpt2-tiny");
    c.norm_eps = 1e-6F;
    c.ffn_channels = 136;
    const std::string text = write_gpt2_config(c, "float32", 7);
    CHECK(text.find("\"layer_norm_epsilon\": 1e-06") != std::string::npos);
    CHECK(text.find("\"eos_token_id\": 7") != std::string::npos);
    CHECK(write_gpt2_config(c, "float32", -1).find("\"eos_token_id\": null") != std::string::npos);
    const DecoderConfig back = read_gpt2_config(Folder(text).path());
    CHECK(back.vocab_size == c.vocab_size);
    CHECK(back.context_length == c.context_length);
    CHECK(back.num_layers == c.num_layers);
    CHECK(back.ffn_channels == c.ffn_channels);
    CHECK(back.norm_eps == c.norm_eps);
    CHECK(back.init_std == c.init_std);
}

TEST_CASE("gpt2: what the Decoder cannot do is refused by name") {
    const auto refused = [](const std::string& config, const char* text) {
        CHECK_THROWS_WITH_AS(read_gpt2_config(Folder(config).path()), doctest::Contains(text),
                             Error);
    };
    refused(R"({"model_type": "llama"})", "model_type = llama is not supported");
    refused("{" + kGood + R"(, "activation_function": "relu"})", "activation_function = relu");
    refused("{" + kGood + R"(, "scale_attn_by_inverse_layer_idx": true})",
            "scale_attn_by_inverse_layer_idx = true");
    refused("{" + kGood + R"(, "tie_word_embeddings": false})", "tie_word_embeddings = false");
    refused(R"({"model_type": "gpt2"})", "has no vocab_size");
    refused("{" + kGood + R"(, "n_layer": "two"})", "n_layer = \"two\" has the wrong type");
    refused("{", "is not JSON");
    refused("[]", "is not a JSON object");
    CHECK_THROWS_WITH_AS(read_gpt2_config("/nonexistent"),
                         doctest::Contains("/nonexistent/config.json cannot be opened"), Error);
}
