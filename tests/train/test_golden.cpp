// Goal: logits, gradients and ten AdamW steps agree with a float64 model of transformers, for every
// recomputation and split. Method: the golden folder, the limits of golden_check.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/train/golden.h"
#include "tests/support/device_matrix.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

const std::string kFolder = source_dir() + "/tests/golden/gpt2-tiny";

}  // namespace

TEST_CASE("golden: gpt2-tiny in fp32, every recomputation, whole and split batches") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const Recompute recompute : {Recompute::none, Recompute::light, Recompute::block}) {
            for (const std::int64_t micro_batch : {2, 1}) {
                CAPTURE(name_of(recompute));
                CAPTURE(micro_batch);
                const std::vector<GoldenLine> lines = run_golden_check(
                    *context, kFolder,
                    {.dtype = DType::f32, .recompute = recompute, .micro_batch = micro_batch});
                CHECK(lines.size() == 2 + 28 + 20);
                for (const GoldenLine& line : lines) {
                    CAPTURE(line.what);
                    CHECK(line.error <= line.limit);
                }
            }
        }
    }
}

TEST_CASE("golden: gpt2-tiny in bf16 stays near") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const GoldenLine& line : run_golden_check(*context, kFolder, {.dtype = DType::bf16})) {
            CAPTURE(line.what);
            CHECK(line.error <= line.limit);
        }
    }
}

TEST_CASE("golden: gpt2-tiny in bf16 stays near with cuDNN's attention") {
    if constexpr (kHasCudnn) {
        if (!has_gpu()) return;
        const auto context = make_context(Device::cuda);
        for (const GoldenLine& line : run_golden_check(
                 *context, kFolder, {.dtype = DType::bf16, .attention = AttentionMethod::cudnn})) {
            CAPTURE(line.what);
            CHECK(line.error <= line.limit);
        }
    }
}

TEST_CASE("golden: another norm_eps is noticed") {
    namespace fs = std::filesystem;
    const TempFolder folder;
    fs::copy(kFolder, folder.path());
    std::string text = read_all(kFolder + "/config.json");
    const std::string eps = "\"layer_norm_epsilon\": 1e-05";
    REQUIRE(text.find(eps) != std::string::npos);
    text.replace(text.find(eps), eps.size(), "\"layer_norm_epsilon\": 1e-03");
    fs::permissions(folder / "config.json", fs::perms::owner_all);
    write_all(folder / "config.json", text);
    const auto context = Context::make_cpu();
    CHECK_FALSE(run_golden_check(*context, folder.path(), {}).front().passes());
}

TEST_CASE("golden: ids outside the vocabulary are refused with their value") {
    namespace fs = std::filesystem;
    for (const char* name : {"inputs", "targets"}) {
        const TempFolder folder;
        fs::copy(kFolder, folder.path());
        std::string bytes = read_all(kFolder + "/golden.safetensors");
        std::uint64_t header_size = 0;
        std::memcpy(&header_size, bytes.data(), 8);
        const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
        const auto begin = header.at(name).at("data_offsets").at(0).get<std::size_t>();
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(8 + header_size + begin), 4,
                    '\xff');
        std::ofstream(folder.path() + "/golden.safetensors", std::ios::binary) << bytes;
        const auto context = Context::make_cpu();
        CHECK_THROWS_WITH_AS(
            run_golden_check(*context, folder.path(), {}),
            doctest::Contains(
                str(name, " hold the id -1, must be below the vocabulary's size, 256").c_str()),
            Error);
    }
}

TEST_CASE("golden: the keys that a folder leaves open are the configuration's; others are named") {
    const GoldenCommand plain = golden_command({});
    CHECK(plain.device == Device::cpu);
    CHECK(plain.options.dtype == DType::f32);
    CHECK(plain.options.grads == DType::f32);
    CHECK(plain.options.recompute == Recompute::none);
    CHECK(plain.options.micro_batch == 0);
    const GoldenCommand all = golden_command(
        {"--model.recompute=block", "--precision.params=bf16", "--precision.grad_accum=bf16",
         "--train.micro_batch=2", "--model.attention=general", "--train.deterministic=false"});
    CHECK(plain.options.attention == AttentionMethod::automatic);
    CHECK(plain.options.deterministic);
    CHECK(all.options.attention == AttentionMethod::general);
    CHECK_FALSE(all.options.deterministic);
    CHECK(all.options.dtype == DType::bf16);
    CHECK(all.options.grads == DType::bf16);
    CHECK(all.options.recompute == Recompute::block);
    CHECK(all.options.micro_batch == 2);
    CHECK(golden_command({"--model.recompute=light"}).options.recompute == Recompute::light);
    const auto refused = [](const char* setting, const char* code, const char* text) {
        CHECK(error_of(code, [&] { golden_command({setting}); }) == doctest::Contains(text));
    };
    refused("--optimizer.lr=0.1", "golden.setting",
            "golden_check: --optimizer.lr=0.1 cannot be set: the folder gives model, batch and "
            "optimizer; allowed are train.device, train.deterministic");
    refused("--train.micro_batch=0", "config.range", "train.micro_batch = 0");
    refused("--train.device=tpu", "config.word",
            "train.device = tpu, allowed is auto, cpu or cuda");
    refused("--model.recompte=none", "config.unknown_key", "model.recompute");
}
