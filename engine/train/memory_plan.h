// The memory of one rank, before anything is allocated. Exact for the arenas: the same plans that a
// run allocates from are asked for their sizes. What lies outside (the device's context and library
// code, thread stacks, BLAS buffers) is an estimate and marked as one; a run shows the measured
// figure beside it after its first step.
#pragma once

#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/core/nvml.h"
#include "engine/train/param_store.h"
#include "model/activation_plan.h"
#include "model/decoder_config.h"

namespace ingot {

// Where a run would go: this machine's device, or a card by name that need not be there.
struct DeviceDescription {
    std::string name;  // "cpu", "h200"
    Device device = Device::cpu;
    std::int64_t total_bytes = 0;  // of the device (CPU: what this process may use)
    std::int64_t fixed_bytes = 0;  // estimate: context, library code, BLAS buffers
    double peak_flops = 0.0;       // dense bf16, FLOP/s; 0 = unknown
    // Of a card of this machine: what is free now, and who has the rest. -1: not asked.
    std::int64_t free_bytes = -1;
    std::vector<GpuProcess> processes;
};
// plan.gpu: cpu, a100-40, a100-80, h100-80, h200, l40s, rtx4090. Throws plan.gpu listing them.
DeviceDescription describe_device(const std::string& name);
// This machine's CPU: the smaller of the available memory and the control group's limit.
DeviceDescription describe_this_cpu();
// Of dense bf16 products, FLOP/s, by the name that the driver gives a card ("NVIDIA H100 PCIe"); 0
// when it is not known.
double known_peak_flops(const std::string& device_name);
// A CUDA device of this machine.
DeviceDescription describe_this_gpu(int device_index);

struct MemoryRequest {
    DecoderConfig model;
    ActivationOptions activations;
    ParamStoreOptions params;
    std::int64_t grad_accum_steps = 1;
    int world_size = 1;
    LoaderConfig loader;
    DeviceDescription target;
};

struct MemoryItem {
    std::string name;
    std::int64_t bytes = 0;
    bool is_exact = true;     // false: an estimate
    bool is_on_host = false;  // pinned or loader memory of a CUDA run
};

struct MemoryPlan {
    std::vector<MemoryItem> items;
    std::int64_t staging_bytes = 0;  // host memory for a moment, while weights are read or written

    std::int64_t device_bytes() const;  // everything on the device; on the CPU everything
    std::int64_t host_bytes() const;    // of a CUDA run
    std::int64_t exact_bytes() const;   // arenas on device and host
    // Replaces the estimate, once cuDNN has said what it takes.
    void set_cudnn_workspace(std::int64_t bytes);
};

MemoryPlan plan_memory(const MemoryRequest& request);

// One thing that would make it smaller, with what it would come to.
struct MemoryRemedy {
    std::string change;  // "train.micro_batch = 4"
    std::int64_t device_bytes = 0;
};
// In the users' order: batch, sequence, recompute, accumulation, bf16, ZeRO.
std::vector<MemoryRemedy> memory_remedies(const MemoryRequest& request);

std::string format_plan(const MemoryRequest& request, const MemoryPlan& plan);
// Throws memory.plan_too_large with plan, device and remedies when the plan does not fit, and
// memory.device_busy with the processes on the device when it would fit but for them.
void require_fits(const MemoryRequest& request, const MemoryPlan& plan);

// What is used now, bytes. CPU: anonymous resident memory of this process (RssAnon of
// /proc/self/status). CUDA: what is not free on the device, other processes included.
std::int64_t used_memory_bytes(const Context& context);

}  // namespace ingot
