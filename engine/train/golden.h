// Compares the engine with a golden folder: config.json, model.safetensors, golden.safetensors
// (inputs, targets, logits, grad.<hf name>) and golden.json (loss, ten AdamW steps), computed in
// float64 by another program. Runs forward, backward and the steps on the device asked for.
//
// Limits, fp32: logits 2e-5 on the CPU, 1e-4 on CUDA (largest difference); a gradient
// |d| <= rel |g| + 1e-7 |all gradients| in norms, rel 1e-4 on the CPU, 1e-3 on CUDA; losses and
// norms of the steps 1e-5 and 1e-4 relative. bf16 anywhere: 5e-2 logits, 5e-2
// gradients, 1e-2 losses.
// Errors: golden.format, golden.setting, and those of the files read.
#pragma once

#include <string>
#include <vector>

#include "engine/core/device.h"
#include "model/activation_plan.h"

namespace ingot {

struct GoldenOptions {
    DType dtype = DType::f32;  // of parameters and activations
    DType grads = DType::f32;
    Recompute recompute = Recompute::none;
    AttentionMethod attention = AttentionMethod::automatic;
    bool deterministic = true;
    std::int64_t micro_batch = 0;  // rows of a micro-step; 0 = the whole golden batch
};

// What `./golden_check DIR [--section.key=value ...]` asks for. The keys are those of the
// configuration that a golden folder leaves open (golden_keys()); without any: fp32 on the CPU, the
// whole batch at once. Other keys throw golden.setting; unknown keys and values config.*.
struct GoldenCommand {
    Device device = Device::cpu;
    GoldenOptions options;
};
GoldenCommand golden_command(const std::vector<std::string>& settings);
std::string golden_keys();  // "train.device, train.micro_batch, ..."

struct GoldenLine {
    std::string what;    // "logits", "grad transformer.wte.weight", "loss of step 3"
    double error = 0.0;  // in the unit of the limit
    double limit = 0.0;
    bool passes() const { return error <= limit; }  // false for NaN
};

// One line a quantity; the check passes when every line does.
std::vector<GoldenLine> run_golden_check(Context& context,
                                         const std::string& folder,
                                         const GoldenOptions& options);

}  // namespace ingot
