// Goal: the profile of a step is complete, adds up, and changes nothing.
// Method: values in, text out; whole runs on the CPU with and without a profiled step.
#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/core/file.h"
#include "engine/train/step_profile.h"
#include "engine/train/trainer.h"
#include "tests/support/compare.h"
#include "tests/support/run_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Json = nlohmann::json;

StepProfile small_profile() {
    StepProfile profile{7, 10.0, {}};
    profile.parts.push_back({"lm_head_loss/matmul_wgrad", DType::bf16, 2, 4.0, 8'000'000, 2e9});
    profile.parts.push_back({"sum", DType::f32, 1, 0.5, 1000, 0.0});
    return profile;
}

Json read_json(const std::string& path) {
    const FileReader file(path);
    std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
    file.read(0, text.data(), file.size_bytes());
    return Json::parse(text);
}

std::vector<float> weights_after(const TrainConfig& config) {
    Log log;
    Trainer trainer(config, log);
    trainer.run();
    std::vector<float> all;
    for (int g = 0; g < trainer.store().num_groups(); ++g) {
        const Tensor master = trainer.store().master(g);
        std::vector<float> values(static_cast<std::size_t>(master.numel()));
        read_floats(trainer.context(), master, values.data());
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

}  // namespace

TEST_CASE("step profile: the file holds every part and the rest") {
    const Json json = Json::parse(to_json(small_profile()));
    CHECK(json.size() == 4);
    CHECK(json.at("step") == 7);
    CHECK(json.at("step_ms") == 10.0);
    CHECK(json.at("unexplained_ms") == 5.5);
    REQUIRE(json.at("parts").size() == 2);
    CHECK(json["parts"][0] == Json({{"name", "lm_head_loss/matmul_wgrad"},
                                    {"calls", 2},
                                    {"ms", 4.0},
                                    {"bytes", 8'000'000},
                                    {"flops", 2e9},
                                    {"dtype", "bf16"}}));
}

TEST_CASE("step profile: the table shows shares and rates, and a dash where nothing was computed") {
    CHECK(format_profile(small_profile()) ==
          "profile of step 7, 10.000 ms (events around every op make it a little longer)\n"
          "  op                        dtype   calls         ms   share      GB/s   TFLOP/s\n"
          "  lm_head_loss/matmul_wgrad bf16        2      4.000   40.0%       2.0       0.5\n"
          "  sum                       f32         1      0.500    5.0%       0.0         -\n"
          "  (no op)                                      5.500   55.0%\n");
}

TEST_CASE("step profile: a profiled step knows every op, once, and its parts are the step") {
    const RunScratch scratch("profile_parts");
    TrainConfig config = scratch.config("run");
    config.train.micro_batch = 2;
    config.train.global_batch = 4;
    config.log.profile_step = 2;
    weights_after(config);
    const Json json = read_json(scratch.path("run/profile.json"));
    CHECK(json.at("step") == 2);
    std::set<std::string> names;
    double sum_ms = 0.0;
    for (const Json& part : json.at("parts")) {
        CAPTURE(part);
        CHECK(names.insert(part.at("name").get<std::string>()).second);
        CHECK(part.at("ms").get<double>() >= 0.0);
        CHECK(part.at("bytes").get<std::int64_t>() > 0);
        const bool is_product =
            part.at("name").get<std::string>().find("matmul") != std::string::npos ||
            part.at("name").get<std::string>().find("attention") == 0;
        CHECK((part.at("flops").get<double>() > 0.0) == is_product);
        sum_ms += part.at("ms").get<double>();
    }
    CHECK(names == std::set<std::string>{
                       "adamw", "attention_backward", "attention_forward", "bias_gradient",
                       "clip_by_global_norm", "embedding_backward", "embedding_forward",
                       "layernorm_backward", "layernorm_forward", "lm_head_loss/cross_entropy",
                       "lm_head_loss/matmul_dgrad", "lm_head_loss/matmul_forward",
                       "lm_head_loss/matmul_wgrad", "matmul_dgrad", "matmul_forward",
                       "matmul_wgrad", "residual_layernorm_forward", "squared_norm", "sum"});
    const Json record = scratch.records("run", "loss").at(1);
    const double step_ms = json.at("step_ms").get<double>();
    CHECK(step_ms == record.at("step_ms").get<double>());
    CHECK(sum_ms + json.at("unexplained_ms").get<double>() == doctest::Approx(step_ms));
    CHECK(json.at("unexplained_ms").get<double>() >= 0.0);
}

TEST_CASE("step profile: calls and costs are those of the model") {
    const RunScratch scratch("profile_costs");
    TrainConfig config = scratch.config("run");
    config.train.micro_batch = 2;
    config.train.global_batch = 4;
    config.log.profile_step = 1;
    weights_after(config);
    // gpt2-tiny: 4 layers, 128 channels; rows of a micro-step: 2 x 16; 2 micro-steps.
    const Json json = read_json(scratch.path("run/profile.json"));
    const auto part = [&](const std::string& name) {
        const auto found = std::find_if(json.at("parts").begin(), json.at("parts").end(),
                                        [&](const Json& p) { return p.at("name") == name; });
        REQUIRE(found != json.at("parts").end());
        return *found;
    };
    CHECK(part("matmul_forward").at("calls") == 2 * 4 * 4);
    const double rows = 2 * 16;
    const double layer_weights = 128.0 * (3 * 128 + 128 + 4 * 128 + 4 * 128);
    CHECK(part("matmul_forward").at("flops") == 2 * 4 * 2 * rows * layer_weights);
    CHECK(part("matmul_wgrad").at("flops") == 2 * 4 * 2 * rows * layer_weights);
    CHECK(part("attention_forward").at("calls") == 2 * 4);
    CHECK(part("attention_forward").at("flops") == 2 * 4 * 2 * rows * 128 * 16);
    CHECK(part("sum").at("bytes") == 2 * (rows + 1) * 4);
    CHECK(part("layernorm_forward").at("bytes") == 2 * (2 * rows * 128 + 2 * rows + 2 * 128) * 4);
}

TEST_CASE("step profile: profiling changes no record and no weight, nor does it go on") {
    const RunScratch scratch("profile_bits");
    const TrainConfig plain = scratch.config("plain");
    TrainConfig profiled = scratch.config("profiled");
    profiled.log.profile_step = 3;
    CHECK(weights_after(plain) == weights_after(profiled));
    const auto losses = [&](const char* run) {
        std::vector<double> all;
        for (const Json& record : scratch.records(run, "loss"))
            all.push_back(record.at("loss").get<double>());
        return all;
    };
    CHECK(losses("plain") == losses("profiled"));
    CHECK(losses("plain").size() == 5);
    CHECK_FALSE(file_exists(scratch.path("plain/profile.json")));
    CHECK(read_json(scratch.path("profiled/profile.json")).at("step") == 3);
}

TEST_CASE("step profile: a step that the run does not have is refused") {
    const RunScratch scratch("profile_refused");
    TrainConfig config = scratch.config("run");
    config.log.profile_step = 6;
    Log log;
    CHECK_THROWS_WITH_AS(Trainer(config, log),
                         "log.profile_step = 6, but the run has 5 steps; name one of them, or 0 "
                         "for none",
                         Error);
}
