// Checks of keys against each other.
#include <algorithm>

#include "engine/core/check.h"
#include "engine/train/config.h"

namespace ingot {
namespace {

void check_model(TrainConfig& config) {
    const TrainConfig::Model& m = config.model;
    ENSURE(!m.preset.empty() || !m.hf.empty(), "config.combination",
           "config: neither model.preset nor model.hf is set; set model.preset=gpt2-tiny, or "
           "model.hf to a folder with config.json");
    ENSURE(m.preset.empty() || m.hf.empty(), "config.combination",
           "config: model.preset = ", m.preset, " and model.hf = ", m.hf,
           " both give an architecture; set one of them to \"\"");
    using Init = TrainConfig::Model::Init;
    ENSURE(m.init != Init::hf || !m.hf.empty(), "config.combination",
           "config: model.init = hf, but model.hf is empty; set model.hf to the folder with the "
           "weights, or model.init=scratch");
    ENSURE(m.init != Init::automatic || m.hf.empty(), "config.combination",
           "config: model.hf = ", m.hf,
           ", but model.init = auto; set model.init=hf to start from "
           "its weights or model.init=scratch to start from random ones");
    if (m.init == Init::automatic) config.model.init = Init::scratch;
}

void check_length(const TrainConfig& config) {
    const TrainConfig::Train& t = config.train;
    ENSURE(t.steps > 0 || t.epochs > 0, "config.combination",
           "config: train.steps = 0 and train.epochs = 0, one of them must be greater; set "
           "train.steps=1000, say");
    ENSURE(t.steps == 0 || t.epochs == 0, "config.combination", "config: train.steps = ", t.steps,
           " and train.epochs = ", t.epochs,
           " both give the length of the run; set one of them to 0");
    ENSURE(t.steps == 0 || config.schedule.warmup_steps <= t.steps, "config.combination",
           "config: schedule.warmup_steps = ", config.schedule.warmup_steps,
           ", allowed is at most train.steps = ", t.steps, "; warm up for fewer steps");
}

void check_data(const TrainConfig& config) {
    ENSURE(!config.data.train.empty(), "config.combination",
           "config: data.train is empty; set it to the token shards, e.g. "
           "data.train=datasets/mine/train*.bin (tools/prepare_data.py makes them)");
    ENSURE(config.eval.every == 0 || !config.data.val.empty(), "config.combination",
           "config: eval.every = ", config.eval.every,
           ", but data.val is empty; set data.val to validation shards, or eval.every=0");
}

}  // namespace

void check_config(TrainConfig& config, ConfigUse use) {
    check_model(config);
    if (use == ConfigUse::train) {
        check_length(config);
        check_data(config);
    }
    ENSURE(!config.log.dir.empty(), "config.combination",
           "config: log.dir is empty; set it to a folder for this run, e.g. log.dir=runs/first");
    if (config.checkpoint.dir.empty()) config.checkpoint.dir = config.log.dir + "/checkpoints";
    // Needs no ranks: a batch that no number of ranks can divide is wrong on every machine.
    const std::int64_t world_size = use == ConfigUse::plan ? config.plan.world_size : 1;
    grad_accum_steps(config, static_cast<int>(world_size));
}

std::int64_t global_batch_sequences(const TrainConfig& config, int world_size) {
    if (config.train.global_batch > 0) return config.train.global_batch;
    return config.train.micro_batch * world_size;
}

std::int64_t grad_accum_steps(const TrainConfig& config, int world_size) {
    ENSURE(world_size >= 1, "config.batch", "config: world size = ", world_size,
           ", allowed is 1 or more");
    const std::int64_t micro = config.train.micro_batch;
    const std::int64_t global = global_batch_sequences(config, world_size);
    const std::int64_t unit = micro * world_size;
    if (global % unit != 0) {
        const std::int64_t below = global / unit * unit;
        fail("config.batch", "config: train.global_batch = ", global,
             ", allowed are multiples of train.micro_batch x ranks = ", micro, " x ", world_size,
             " = ", unit, "; the nearest are ", below > 0 ? str(below, " and ") : std::string(),
             below + unit);
    }
    return global / unit;
}

std::string batch_line(const TrainConfig& config, int world_size) {
    return str("global batch = ", config.train.micro_batch, " x ",
               grad_accum_steps(config, world_size), " x ", world_size, " = ",
               global_batch_sequences(config, world_size), " sequences");
}

}  // namespace ingot
