// Goal: a run on the GPU repeats to the bit, also with the matmul algorithms of an earlier run, and
// uses the memory that was planned. Method: whole runs; skipped where there is no GPU.
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "engine/core/file.h"
#include "engine/core/host_waits.h"
#include "engine/train/trainer.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/run_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

TrainConfig gpu_config(const RunScratch& scratch, const std::string& run) {
    TrainConfig config = scratch.config(run);
    config.train.device = TrainConfig::Train::Device::cuda;
    return config;
}

// What a run records of its steps that does not depend on time.
std::vector<double> numbers_of(const RunScratch& scratch, const std::string& run) {
    std::vector<double> numbers;
    for (const nlohmann::json& record : scratch.records(run, "loss")) {
        numbers.push_back(record.at("loss").get<double>());
        numbers.push_back(record.at("grad_norm").get<double>());
    }
    return numbers;
}

// The log of a run without what is its own: times differ.
std::string log_of(const RunScratch& scratch, const std::string& run) {
    return read_text_file(scratch.path(run + "/rank_0000.log"));
}

}  // namespace

TEST_CASE("trainer on the GPU: the same bits again, and with the matmul plans of the first run") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_bits");
    const TrainConfig first = gpu_config(scratch, "first");
    const std::vector<float> expected = state_of(*train(first));
    TrainConfig imported = gpu_config(scratch, "imported");
    imported.train.matmul_plans = scratch.path("first/matmul_plans.txt");
    const std::vector<float> with_plans = state_of(*train(imported));
    CHECK(with_plans == expected);
    CHECK(numbers_of(scratch, "imported") == numbers_of(scratch, "first"));
    CHECK(read_text_file(scratch.path("imported/matmul_plans.txt")) ==
          read_text_file(scratch.path("first/matmul_plans.txt")));
    CHECK(log_of(scratch, "imported").find("none had to be timed") != std::string::npos);
    CHECK(log_of(scratch, "first").find("matmul algorithms: timed") != std::string::npos);

    TrainConfig again = imported;
    again.log.dir = scratch.path("again");
    again.checkpoint.dir = again.log.dir + "/checkpoints";
    CHECK(state_of(*train(again)) == expected);
    CHECK(numbers_of(scratch, "again") == numbers_of(scratch, "first"));
}

TEST_CASE("trainer on the GPU: plans of another GPU model are timed again, with a warning") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_plans");
    TrainConfig first = gpu_config(scratch, "first");
    first.train.steps = 1;
    train(first);
    std::string text = read_text_file(scratch.path("first/matmul_plans.txt"));
    const std::size_t gpu = text.find("\ngpu ");
    REQUIRE(gpu != std::string::npos);
    text.replace(gpu, text.find('\n', gpu + 1) - gpu, "\ngpu NVIDIA Other");
    write_text_file(scratch.path("other.txt"), text);
    TrainConfig second = gpu_config(scratch, "second");
    second.train.steps = 1;
    second.train.matmul_plans = scratch.path("other.txt");
    train(second);
    const std::string log = log_of(scratch, "second");
    CHECK(log.find("gpu NVIDIA Other") != std::string::npos);
    CHECK(log.find("bits may differ") != std::string::npos);
    CHECK(log.find("matmul algorithms: timed") != std::string::npos);
}

TEST_CASE("trainer on the GPU: one batch is overfitted to a loss below 0.01, in bf16") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_overfit");
    TrainConfig config = gpu_config(scratch, "run");
    config.train.overfit_one_batch = true;
    config.train.steps = 150;
    config.train.seed = 1;  // four windows that start with different tokens: nothing is ambiguous
    config.train.micro_batch = 2;
    config.train.global_batch = 4;
    config.optimizer.lr = 5e-3;
    config.optimizer.weight_decay = 0.0;
    config.schedule.warmup_steps = 5;
    train(config);
    const auto records = scratch.records("run", "loss");
    CHECK(records.front().at("loss").get<double>() > 3.0);
    CHECK(records.back().at("loss").get<double>() < 0.01);
}

TEST_CASE("trainer on the GPU: measured memory is the planned within 3 %, and stays what it was") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_memory", 64 * 1024 + 1, 4 * 1024 + 1);
    TrainConfig config = gpu_config(scratch, "run");
    config.model.preset = "gpt2-124m";
    config.model.vocab_size = 50257;
    config.train.seq_len = 1024;
    config.train.micro_batch = 16;
    config.train.global_batch = 32;
    config.train.steps = 2;
    Log log;
    Trainer trainer(config, log);  // after the warm-up
    const auto planned = static_cast<double>(trainer.memory_plan().device_bytes());
    const std::int64_t used = used_memory_bytes(trainer.context());
    CAPTURE(planned);
    CAPTURE(used);
    CHECK(static_cast<double>(used) == doctest::Approx(planned).epsilon(0.03));
    const std::int64_t allocated = trainer.context().allocated_bytes();
    trainer.run();
    CHECK(trainer.context().allocated_bytes() == allocated);
    const std::int64_t later = used_memory_bytes(trainer.context()) - used;
    CAPTURE(later);
    CHECK(later < 64 << 20);  // nothing of size is loaded or allocated after the warm-up
}

TEST_CASE("trainer on the GPU: a step waits for a result and its times, and for nothing else") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_waits");
    // Waits after the warm-up, whose timing of matmul algorithms waits, too.
    const auto waits = [&](const char* run, int steps, int micro_batch) {
        TrainConfig config = gpu_config(scratch, run);
        config.train.steps = steps;
        config.train.micro_batch = micro_batch;
        config.train.global_batch = 4;
        Log log;
        Trainer trainer(config, log);
        const HostWaits& all = trainer.context().object<HostWaits>();
        const HostWaits before = all;
        trainer.run();
        return HostWaits{all.for_streams - before.for_streams, all.for_events - before.for_events};
    };
    for (const int micro_batch : {4, 1}) {  // 1 and 4 micro-steps a step
        CAPTURE(micro_batch);
        const HostWaits few = waits(micro_batch == 4 ? "few" : "few_split", 2, micro_batch);
        const HostWaits more = waits(micro_batch == 4 ? "more" : "more_split", 6, micro_batch);
        // Those for streams belong to the export and the validation at the end.
        CHECK(more.for_streams == few.for_streams);
        CHECK(few.for_events == 2 * 2);
        CHECK(more.for_events == 2 * 6);
    }
}

TEST_CASE("trainer on the GPU: records hold the device's state, a profile every op of the step") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_records");
    TrainConfig config = gpu_config(scratch, "run");
    config.log.profile_step = 3;
    train(config);
    const std::string text = log_of(scratch, "run");
    if (text.find("records without the GPU's load") == std::string::npos) {
        for (const nlohmann::json& record : scratch.records("run", "loss")) {
            CHECK(record.at("gpu_mem_used_bytes").get<double>() > 0);
            CHECK(record.at("gpu_power_w").get<double>() > 0);
            CHECK(record.at("gpu_clocks").is_array());
        }
    }
    const nlohmann::json profile =
        nlohmann::json::parse(read_text_file(scratch.path("run/profile.json")));
    CHECK(profile.at("parts").size() == 19);
    CHECK(profile.at("unexplained_ms").get<double>() > 0.0);
    for (const nlohmann::json& part : profile.at("parts")) {
        CAPTURE(part);
        CHECK(part.at("ms").get<double>() > 0.0);
    }
}

TEST_CASE("trainer on the GPU: a step that is not finite is known before the next one updates") {
    if (!has_gpu()) return;
    const RunScratch scratch("cuda_nonfinite");
    const auto config = [&](const std::string& run) {
        TrainConfig wild = gpu_config(scratch, run);
        wild.schedule.kind = TrainConfig::Schedule::Kind::constant;
        wild.optimizer.lr = 1e30;
        wild.optimizer.grad_clip = 0.0;
        return wild;
    };
    TrainConfig one_step = config("one");
    one_step.train.steps = 1;
    one_step.eval.every = 0;
    const std::vector<float> after_one = state_of(*train(one_step));

    Log log;
    Trainer trainer(config("stop"), log);
    CHECK_THROWS_WITH_AS(trainer.run(), doctest::Contains("step 2: loss = "), Error);
    CHECK(scratch.records("stop", "loss").size() == 1);
    CHECK(state_of(trainer) == after_one);
}
