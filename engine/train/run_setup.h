// From a checked configuration to what a run is made of: device, model, data, batch arithmetic,
// memory request. Everything that can be refused before memory is allocated is refused here.
// Errors: setup.*, and those of config, data and model.
#pragma once

#include <memory>
#include <string>

#include "data/token_set.h"
#include "engine/core/log.h"
#include "engine/train/config.h"
#include "engine/train/memory_plan.h"

namespace ingot {

struct RunSetup {
    Device device = Device::cpu;
    DecoderConfig model;
    bool has_pretrained_weights = false;  // model.init = hf
    std::int64_t B = 0, T = 0;
    std::int64_t global_batch = 0;  // sequences a step
    std::int64_t grad_accum_steps = 0;
    DType params = DType::f32;
    DType grads = DType::f32;
    AttentionMethod attention = AttentionMethod::general;  // model.attention, resolved
    bool deterministic = true;
    // Of a training run; null in a plan without data.
    std::unique_ptr<TokenSet> train, val, test;
    std::int64_t steps_per_epoch = 0;
    std::int64_t total_steps = 0;
    int world_size = 1;
    DeviceDescription target;      // where it runs, or would run
    std::string tokenizer_folder;  // holds tokenizer.json; "" = none
    std::int64_t eos_id = -1;

    MemoryRequest memory_request(const TrainConfig& config) const;
    LoaderConfig loader_config(const TrainConfig& config) const;
};

// For training: opens the data. Automatic choices are logged.
RunSetup set_up_training(const TrainConfig& config, Log& log);
// For --plan: needs no data and no device; plan.gpu and plan.world_size hold.
RunSetup set_up_plan(const TrainConfig& config, Log& log);

// train.device = auto: the CPU only where the PCI bus shows no NVIDIA device; a device that is
// there and cannot be used is an error (setup.device), never a silent change to the CPU.
Device resolve_device(TrainConfig::Train::Device wanted, bool machine_has_nvidia_device);

}  // namespace ingot
