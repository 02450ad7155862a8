// Goal: import takes GPT-2 as the world stores it and nothing else; export is what was imported.
// Method: the three folders of case B32 with their float64 loss, round trips, one case per error.
#include <filesystem>
#include <fstream>
#include <functional>

#include <doctest/doctest.h>

#include "engine/train/hf_weights.h"
#include "model/decoder.h"
#include "model/families/gpt2.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

namespace fs = std::filesystem;

// Weights of transformers, and their float64 loss.
const std::string kGolden = source_dir() + "/tests/golden/gpt2-tiny";

struct Model {
    explicit Model(const std::string& folder)
        : context(Context::make_cpu()),
          config(read_gpt2_config(folder)),
          table(make_gpt2_param_table(config)),
          store(*context, table, {.with_grads = false, .with_optimizer = false}) {
        import_hf_weights(folder, store);
    }

    // The mean loss of the golden batch.
    double golden_loss() {
        const SafetensorsReader golden(kGolden + "/golden.safetensors");
        const std::int64_t B = golden.entry("inputs").shape[0];
        const std::int64_t T = golden.entry("inputs").shape[1];
        const auto ids = [&](const char* name) {
            std::vector<std::int32_t> values(static_cast<std::size_t>(B * T));
            golden.read_i32(name, 0, B * T, values.data());
            return values;
        };
        ActivationOptions options;
        options.B = B;
        options.T = T;
        options.with_backward = false;
        Decoder decoder(*context, config, options);
        const TestTensor inputs(*context, {B, T}, ids("inputs"));
        const TestTensor targets(*context, {B, T}, ids("targets"));
        decoder.forward(context->compute_stream(), store, inputs);
        const Tensor losses = decoder.loss(context->compute_stream(), store, targets);
        std::vector<float> values(static_cast<std::size_t>(B * T));
        read_floats(*context, losses, values.data());
        double sum = 0.0;
        for (const float value : values)
            sum += value;
        return sum / static_cast<double>(B * T);
    }

    std::unique_ptr<Context> context;
    DecoderConfig config;
    ParamTable table;
    ParamStore store;
};

struct Change {
    std::string name;    // as written
    std::string source;  // tensor whose values it gets; "" = 0.5 everywhere
    std::vector<std::int64_t> shape;
};

// The golden weights again, with changes: `change` gets the list of tensors and may edit it.
void rewrite(const std::string& target, const std::function<void(std::vector<Change>&)>& change) {
    const SafetensorsFolder folder(kGolden);
    fs::create_directories(target);
    fs::copy_file(kGolden + "/config.json", target + "/config.json",
                  fs::copy_options::overwrite_existing);
    std::vector<Change> tensors;
    for (const std::string& name : folder.names()) {
        tensors.push_back({name, name, folder.entry(name).shape});
    }
    change(tensors);
    std::vector<SafetensorsEntry> entries;
    for (const Change& tensor : tensors) {
        SafetensorsEntry entry;
        entry.name = tensor.name;
        entry.dtype = "F32";
        entry.shape = tensor.shape;
        entries.push_back(entry);
    }
    SafetensorsWriter writer(target + "/model.safetensors", entries);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t numel = entries[i].numel();
        std::vector<float> values(static_cast<std::size_t>(numel), 0.5F);
        if (!tensors[i].source.empty()) {
            folder.read_as_f32(tensors[i].source, 0, numel, values.data());
        }
        writer.write_f32(tensors[i].name, 0, numel, values.data());
    }
    writer.finish();
}

Change& find(std::vector<Change>& tensors, const std::string& name) {
    for (Change& tensor : tensors) {
        if (tensor.name == name) return tensor;
    }
    fail("test.tensor", name, " is not in the golden weights");
}

void without_prefix_and_with_mask_buffers(std::vector<Change>& tensors) {
    for (Change& tensor : tensors)
        tensor.name = tensor.name.substr(std::string("transformer.").size());
    tensors.push_back({"h.0.attn.bias", "", {1, 1, 64, 64}});
    tensors.push_back({"h.0.attn.masked_bias", "", {}});
}

void with_a_copied_head(std::vector<Change>& tensors) {
    tensors.push_back({"lm_head.weight", "transformer.wte.weight", {256, 64}});
}

}  // namespace

TEST_CASE("import: the three ways GPT-2 is stored give the float64 loss") {
    const TempFolder scratch;
    CHECK(Model(kGolden).golden_loss() == doctest::Approx(5.6184612410134145).epsilon(1e-6));
    rewrite(scratch / "bare", without_prefix_and_with_mask_buffers);
    CHECK(Model(scratch / "bare").golden_loss() == Model(kGolden).golden_loss());
    rewrite(scratch / "head", with_a_copied_head);
    CHECK(Model(scratch / "head").golden_loss() == Model(kGolden).golden_loss());
}

TEST_CASE(
    "export: tensors are those imported, byte for byte, without mask buffers or a head copy") {
    const TempFolder scratch;
    rewrite(scratch / "bare", without_prefix_and_with_mask_buffers);
    rewrite(scratch / "head", with_a_copied_head);
    const SafetensorsFolder before(kGolden);
    for (const std::string& source : {kGolden, scratch / "bare", scratch / "head"}) {
        CAPTURE(source);
        Model model(source);
        export_hf(model.store, model.config, {.folder = scratch / "out"});
        const SafetensorsFolder after(scratch / "out");
        CHECK(after.names() == before.names());
        for (const std::string& name : before.names()) {
            CHECK(after.entry(name).shape == before.entry(name).shape);
            const std::int64_t numel = before.entry(name).numel();
            std::vector<float> a(static_cast<std::size_t>(numel));
            std::vector<float> b(a.size());
            before.read_as_f32(name, 0, numel, a.data());
            after.read_as_f32(name, 0, numel, b.data());
            CHECK(a == b);
        }
    }
}

TEST_CASE("convert: bfloat16 is the rounded weight, config and tokenizer travel") {
    const TempFolder scratch;
    std::ofstream(scratch / "tokenizer.json") << "{}";
    convert_hf_folder(
        kGolden,
        {.folder = scratch / "out", .dtype = DType::bf16, .tokenizer_folder = scratch.path()});
    CHECK(fs::exists(scratch / "out/tokenizer.json"));
    CHECK(SafetensorsFolder(scratch / "out").entry("transformer.wte.weight").dtype == "BF16");
    Model in_bf16(scratch / "out");
    Model exact(kGolden);
    const ParamSpec& fcw = exact.table.find("h0.fcw");
    std::vector<float> a(static_cast<std::size_t>(fcw.numel()));
    std::vector<float> b(a.size());
    exact.store.read(fcw, 0, fcw.numel(), a.data());
    in_bf16.store.read(fcw, 0, fcw.numel(), b.data());
    CHECK(b == rounded(a, DType::bf16));
    CHECK_THROWS_WITH_AS(convert_hf_folder(kGolden, {.folder = kGolden}),
                         doctest::Contains("into itself"), Error);
}

TEST_CASE("import: what does not match the model is refused by name") {
    const TempFolder scratch;
    const auto refused = [&](const std::function<void(std::vector<Change>&)>& change,
                             const char* text) {
        rewrite(scratch / "bad", change);
        CHECK_THROWS_WITH_AS(Model(scratch / "bad"), doctest::Contains(text), Error);
    };
    refused(
        [](std::vector<Change>& tensors) {
            std::erase_if(tensors,
                          [](const Change& t) { return t.name == "transformer.ln_f.bias"; });
        },
        "tensor transformer.ln_f.bias is missing");
    refused(
        [](std::vector<Change>& tensors) {
            find(tensors, "transformer.ln_f.bias").name = "transformer.ln_x.bias";
        },
        "tensor transformer.ln_x.bias belongs to no parameter");
    refused(
        [](std::vector<Change>& tensors) {
            find(tensors, "transformer.h.0.attn.c_attn.weight").shape = {192, 64};
        },
        "transformer.h.0.attn.c_attn.weight is [192, 64], config.json asks for [64, 192]");
    refused(
        [](std::vector<Change>& tensors) {
            tensors.push_back({"lm_head.weight", "", {256, 64}});
        },
        "lm_head.weight differs from transformer.wte.weight");
}
