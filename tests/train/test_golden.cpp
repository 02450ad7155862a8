// Goal: logits, gradients and ten AdamW steps agree with a float64 model of transformers, for every
// recomputation and split. Method: the golden folder, the limits of golden_check.
#include <filesystem>

#include <doctest/doctest.h>

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
