// Goal: a whole run does what its configuration says. Method: small models on a Markov chain, the
// records the run wrote, parameters compared at the end.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>

#include "data/shard_writer.h"
#include "engine/core/host_waits.h"
#include "engine/train/hf_weights.h"
#include "engine/train/trainer.h"
#include "tests/support/compare.h"
#include "tests/support/run_folder.h"
#include "tests/support/source_dir.h"

using namespace ingot;
using namespace ingot::test;

namespace {

namespace fs = std::filesystem;

std::vector<double> column(const std::vector<nlohmann::json>& records, const char* key) {
    std::vector<double> values;
    for (const nlohmann::json& record : records)
        values.push_back(record.at(key).get<double>());
    return values;
}

void check_refused(const TrainConfig& config, const char* text) {
    Log log;
    CHECK_THROWS_WITH_AS(Trainer(config, log), doctest::Contains(text), Error);
}

}  // namespace

TEST_CASE("trainer: accumulation 1 x 16 and 16 x 1 agree in every step, parameter and moment") {
    const RunScratch scratch("accumulation");
    TrainConfig whole = scratch.config("whole");
    whole.train.micro_batch = 16;
    whole.train.global_batch = 16;
    TrainConfig split = scratch.config("split");
    split.train.micro_batch = 1;
    split.train.global_batch = 16;
    const auto a = train(whole);
    const auto b = train(split);
    CHECK(a->setup().grad_accum_steps == 1);
    CHECK(b->setup().grad_accum_steps == 16);
    for (const char* key : {"loss", "grad_norm"}) {
        const auto x = column(scratch.records("whole", "loss"), key);
        const auto y = column(scratch.records("split", "loss"), key);
        REQUIRE(x.size() == 5);
        REQUIRE(y.size() == 5);
        for (std::size_t i = 0; i < x.size(); ++i) {
            CHECK(std::fabs(x[i] - y[i]) <= 1e-5 * std::fabs(x[i]));
        }
    }
    CHECK(scratch.records("whole", "loss").back().at("token_hash") ==
          scratch.records("split", "loss").back().at("token_hash"));
    for (const ParamSpec& spec : a->store().table().params) {
        CAPTURE(spec.name);
        // The gradient of a key's bias is zero but for rounding (softmax does not see it), and
        // AdamW makes steps of that noise: only the queries' and values' part can agree.
        const std::int64_t keys =
            spec.name.find("qkvb") != std::string::npos ? spec.numel() / 3 : 0;
        const auto agree = [&](Tensor x, Tensor y) {
            const auto values = [&](Trainer& trainer, const Tensor& flat) {
                std::vector<float> result(static_cast<std::size_t>(spec.numel()));
                read_floats(trainer.context(), flat.slice(spec.offset, spec.offset + spec.numel()),
                            result.data());
                std::fill_n(result.begin() + keys, keys, 0.0F);
                return result;
            };
            CHECK(relative_error(values(*b, y), to_double(values(*a, x))) < 1e-5);
        };
        agree(a->store().master(spec.group), b->store().master(spec.group));
        agree(a->store().m(spec.group), b->store().m(spec.group));
        agree(a->store().v(spec.group), b->store().v(spec.group));
    }
}

TEST_CASE("trainer: the same configuration gives the same bits, another seed does not") {
    const RunScratch scratch("repeat");
    const auto a = train(scratch.config("a"));
    const auto b = train(scratch.config("b"));
    TrainConfig other = scratch.config("c");
    other.train.seed = 7;
    const auto c = train(other);
    CHECK(state_of(*a) == state_of(*b));
    CHECK(state_of(*a) != state_of(*c));
}

TEST_CASE("trainer: adversarial streams train to the same bits") {
    const RunScratch scratch("adversarial");
    TrainConfig config = scratch.config("plain");
    config.train.global_batch = 8;
    const auto expected = state_of(*train(config));
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        config.log.dir = scratch.path(str("run", seed));
        config.checkpoint.dir = config.log.dir + "/checkpoints";
        const auto run = train(config, {.mode = CpuMode::adversarial, .seed = seed});
        CHECK(state_of(*run) == expected);
    }
}

TEST_CASE("trainer: one batch is overfitted to a loss below 0.01") {
    const RunScratch scratch("overfit");
    TrainConfig config = scratch.config("run");
    config.train.overfit_one_batch = true;
    config.train.steps = 60;
    config.train.seed = 1;  // four windows that start with different tokens: nothing is ambiguous
    config.train.micro_batch = 2;
    config.train.global_batch = 4;
    config.optimizer.lr = 5e-3;
    config.optimizer.weight_decay = 0.0;
    config.schedule.warmup_steps = 5;
    train(config);
    const auto losses = column(scratch.records("run", "loss"), "loss");
    CHECK(losses.front() > 3.0);
    CHECK(losses.back() < 0.01);
}

TEST_CASE(
    "trainer: overfitting sees the whole first batch, also in more micro-batches than slots") {
    const RunScratch scratch("overfit_split");
    TrainConfig whole = scratch.config("whole");
    whole.train.overfit_one_batch = true;
    TrainConfig split = scratch.config("split");
    split.train.overfit_one_batch = true;
    split.train.micro_batch = 1;
    split.train.global_batch = 4;
    train(whole);
    train(split, {.mode = CpuMode::adversarial, .seed = 3});
    const auto a = column(scratch.records("whole", "loss"), "loss");
    const auto b = column(scratch.records("split", "loss"), "loss");
    REQUIRE(a.size() == 5);
    for (std::size_t i = 0; i < a.size(); ++i)
        CHECK(b[i] == doctest::Approx(a[i]).epsilon(1e-5));
    CHECK(a.back() < a.front() - 0.3);
}

TEST_CASE("trainer: bf16 parameters train, and learn what fp32 learns") {
    const RunScratch scratch("bf16");
    TrainConfig config = scratch.config("run");
    config.train.steps = 80;
    config.optimizer.lr = 3e-3;
    config.precision.params = TrainConfig::Precision::Params::bf16;
    train(config);
    const auto losses = column(scratch.records("run", "loss"), "loss");
    CHECK(losses.front() > 4.0);
    CHECK(losses.back() < 2.5);
}

TEST_CASE("trainer: evaluation and sampling leave the training stream alone") {
    const RunScratch scratch("stream");
    const auto plain = train(scratch.config("plain"));
    TrainConfig config = scratch.config("busy");
    config.eval.every = 1;
    config.eval.batches = 1;
    config.sample.every = 2;
    config.sample.tokens = 4;
    const auto busy = train(config);
    CHECK(state_of(*plain) == state_of(*busy));
    CHECK(scratch.records("busy", "val_loss").size() == 5);
    CHECK(scratch.records("plain", "val_loss").size() == 1);
}

TEST_CASE("trainer: the final validation counts every window once, the partial batch too (B73)") {
    for (const auto& [val_tokens, windows] : {std::pair{113, 7}, std::pair{49, 3}}) {
        const RunScratch scratch("validation", 4001, val_tokens);
        TrainConfig config = scratch.config("run");  // micro-batch 4
        config.train.steps = 1;
        auto trainer = train(config);
        const nlohmann::json record = scratch.records("run", "val_loss").back();
        CHECK(record.at("val_tokens").get<std::int64_t>() == windows * 16);
        // One window at a time gives the same mean.
        config = scratch.config("single");
        config.train.steps = 1;
        config.train.global_batch = 4;
        config.train.micro_batch = 1;
        train(config);
        const double single = scratch.records("single", "val_loss").back().at("val_loss");
        CHECK(std::isfinite(single));
        CHECK(record.at("val_loss").get<double>() == doctest::Approx(single).epsilon(1e-5));
    }
}

TEST_CASE("trainer: a run learns, records every field, ends with weights that load") {
    const RunScratch scratch("learn");
    TrainConfig config = scratch.config("run");
    config.train.steps = 60;
    config.optimizer.lr = 3e-3;
    config.schedule.warmup_steps = 10;
    config.data.test = scratch.path("val_copy.bin");
    ShardHeader header;
    header.vocab_size = 64;
    header.split = Split::test;
    write_token_shard(config.data.test, header, std::vector<std::int64_t>(100, 5));
    const auto trainer = train(config);
    const auto records = scratch.records("run", "loss");
    REQUIRE(records.size() == 60);
    for (const char* key : {"step", "epoch", "loss", "grad_norm", "lr", "tokens", "tokens_per_s",
                            "step_ms", "forward_ms", "backward_ms", "optimizer_ms",
                            "comm_exposed_ms", "data_wait_ms", "token_hash"}) {
        CHECK(records.back().contains(key));
    }
    CHECK(records.back().at("step") == 60);
    CHECK(records.back().at("loss").get<double>() < 2.0);
    CHECK(scratch.records("run", "test_loss").size() == 1);
    CHECK(fs::exists(trainer->checkpoint_path() + "/model.safetensors"));

    TrainConfig again = scratch.config("again");
    again.model.preset = "";
    again.model.hf = trainer->checkpoint_path();
    again.model.init = TrainConfig::Model::Init::hf;
    again.train.steps = 1;
    train(again);
    CHECK(scratch.records("again", "loss").front().at("loss").get<double>() < 2.2);
}

TEST_CASE("trainer: the arenas are those of the plan, to the byte") {
    const RunScratch scratch("memory");
    for (const auto recompute :
         {TrainConfig::Model::Recompute::none, TrainConfig::Model::Recompute::block}) {
        TrainConfig config = scratch.config(str("run", static_cast<int>(recompute)));
        config.model.recompute = recompute;
        config.train.steps = 1;
        Log log;
        Trainer trainer(config, log);
        CHECK(trainer.context().allocated_bytes() == trainer.memory_plan().exact_bytes());
    }
}

TEST_CASE("trainer: a step that is not finite stops the run before an update and is named") {
    const RunScratch scratch("nonfinite");
    TrainConfig config = scratch.config("stop");
    config.optimizer.lr = 1e30;
    config.optimizer.grad_clip = 0.0;
    Log log;
    Trainer trainer(config, log);
    CHECK_THROWS_WITH_AS(trainer.run(), doctest::Contains("step 2: loss = "), Error);
    CHECK(scratch.records("stop", "loss").size() == 1);

    config = scratch.config("skip");
    config.optimizer.lr = 1e30;
    config.optimizer.grad_clip = 0.0;
    config.train.nonfinite = TrainConfig::Train::Nonfinite::skip;
    train(config);
    CHECK(scratch.records("skip", "loss").size() == 5);
    const std::string log_file = read_text_file(scratch.path("skip/rank_0000.log"));
    CHECK_MESSAGE(log_file.find(", 4 steps skipped") != log_file.npos, log_file);
}

TEST_CASE("trainer: a schedule's rate reaches the records") {
    const RunScratch scratch("schedule");
    TrainConfig config = scratch.config("run");
    config.schedule.kind = TrainConfig::Schedule::Kind::linear;
    config.schedule.warmup_steps = 2;
    config.schedule.final_lr_ratio = 0.0;
    train(config);
    const auto rates = column(scratch.records("run", "loss"), "lr");
    CHECK(rates.front() == doctest::Approx(5e-4));
    CHECK(rates[1] == doctest::Approx(1e-3));
    CHECK(rates.back() == 0.0);
}

TEST_CASE("trainer: what cannot work is refused before the first step, with numbers") {
    const RunScratch scratch("refusals");
    TrainConfig config = scratch.config("run");
    config.train.global_batch = 400;
    check_refused(config, "one global batch needs 400");

    config = scratch.config("run");
    config.model.vocab_size = 40;
    check_refused(config, "40");

    config = scratch.config("run");
    config.data.val = config.data.train;
    check_refused(config, "train_000.bin");

    config = scratch.config("run");
    config.model.attention = TrainConfig::Model::Attention::own;
    check_refused(config, "model.attention = own: flash attention needs CUDA");
    check_refused(config, "on cpu in f32 with head size 32");
    config.model.attention = TrainConfig::Model::Attention::cudnn;
    check_refused(config, "model.attention = cudnn: cuDNN's attention needs CUDA and bf16");

    config = scratch.config("run");
    config.train.seq_len = 300;
    config.data.val = "";
    config.train.micro_batch = 1;
    config.train.steps = 1;
    CHECK_NOTHROW(train(config));  // from scratch the position table grows
}

TEST_CASE("trainer: a pretrained model's positions are not stretched") {
    const RunScratch scratch("positions");
    TrainConfig config = scratch.config("run");
    config.model.preset = "";
    config.model.hf = source_dir() + "/tests/golden/gpt2-tiny";
    config.model.init = TrainConfig::Model::Init::hf;
    config.train.seq_len = 65;
    config.train.micro_batch = 1;
    check_refused(config, "train.seq_len = 65");
}

TEST_CASE("trainer: a folder with a run is not written into again") {
    const RunScratch scratch("twice");
    train(scratch.config("run"));
    check_refused(scratch.config("run"), "holds another run");
}

TEST_CASE("trainer: a device that is there and cannot be used is no reason for the CPU") {
    using Wanted = TrainConfig::Train::Device;
    CHECK(resolve_device(Wanted::cpu, true) == Device::cpu);
    CHECK(resolve_device(Wanted::automatic, false) == Device::cpu);
    if (kHasCuda) {
        CHECK(resolve_device(Wanted::cuda, false) == Device::cuda);
        CHECK(resolve_device(Wanted::automatic, true) == Device::cuda);
    } else {
        CHECK_THROWS_WITH_AS(resolve_device(Wanted::cuda, false),
                             doctest::Contains("train.device = cuda, but this build holds no CUDA"),
                             Error);
        CHECK_THROWS_WITH_AS(resolve_device(Wanted::automatic, true),
                             doctest::Contains("has an NVIDIA device"), Error);
    }
}

TEST_CASE("trainer: matmul plans that are no file are refused; on the CPU plans change nothing") {
    const RunScratch scratch("matmul_plans");
    TrainConfig config = scratch.config("run");
    config.train.matmul_plans = scratch.path("missing.txt");
    check_refused(config, str("train.matmul_plans = ", scratch.path("missing.txt"),
                              " is no file; name the matmul_plans.txt in log.dir")
                              .c_str());
    const auto plain = train(scratch.config("plain"));
    config.train.matmul_plans = scratch.path("train_000.bin");
    const auto with_plans = train(config);
    CHECK(state_of(*plain) == state_of(*with_plans));
}

TEST_CASE("trainer: a step waits for its result and its times, and for nothing else") {
    const RunScratch scratch("host_waits");
    const auto waits = [&](const char* run, int steps, int micro_batch) {
        TrainConfig config = scratch.config(run);
        config.train.steps = steps;
        config.train.micro_batch = micro_batch;
        config.train.global_batch = 4;
        return train(config)->context().object<HostWaits>();
    };
    const HostWaits few = waits("few", 2, 4);
    const HostWaits more = waits("more", 5, 4);
    // Those for streams belong to the start, the export and the validation at the end.
    CHECK(more.for_streams == few.for_streams);
    CHECK(few.for_events == 2 * 2);
    CHECK(more.for_events == 2 * 5);
    // The validation at the end has as many batches as micro_batch makes of it.
    const HostWaits split = waits("split", 2, 1);
    const HostWaits more_split = waits("more_split", 5, 1);
    CHECK(more_split.for_streams == split.for_streams);
    CHECK(more_split.for_events == 2 * 5);
}
