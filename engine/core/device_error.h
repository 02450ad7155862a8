// Why a CUDA device cannot be used or has no memory left, in words that say what to do. No CUDA in
// here: engine/core/device_cuda.cpp fills in the facts.
// Errors: device.no_driver, device.driver_too_old, device.none, device.not_ready, device.busy,
// device.full, device.unusable, device.too_old.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/nvml.h"

namespace ingot {

struct DeviceFailure {
    enum class Kind {
        insufficient_driver,  // or none at all: driver_version is 0
        no_device,
        not_ready,  // the system's services for the device do not run
        busy,       // the device takes no (further) process
        full,       // not even the context of a process fits its memory
        other,
    };
    Kind kind = Kind::other;
    std::string reason;  // the runtime's own words
    int driver_version = 0, runtime_version = 0;
    int device_index = 0;
    std::string gpu;                  // its name, where it is known
    std::string compute_mode;         // "default", "exclusive process", "prohibited"
    std::optional<GpuMemory> memory;  // where it is known
    std::vector<GpuProcess> processes;
};
[[noreturn]] void fail_unusable_device(const DeviceFailure& failure);

// device.too_old below compute capability 8.0.
void require_supported(const DeviceInfo& info);

std::string format_cuda_version(int version);  // 12040 -> "12.4"

// "1073741824 of 150754820096 bytes are free; other processes on it: 4711 python3 61.30 GiB (...)"
std::string describe_gpu_memory(std::int64_t free_bytes,
                                std::int64_t total_bytes,
                                const std::vector<GpuProcess>& processes);

// Both are empty where the management library does not tell.
std::optional<GpuMemory> memory_of_gpu(const std::string& pci_bus_id,
                                       const std::string& library = NvmlDevice::kLibrary);
std::vector<GpuProcess> processes_on_gpu(const std::string& pci_bus_id,
                                         const std::string& library = NvmlDevice::kLibrary);

}  // namespace ingot
