#include "engine/core/device_error.h"

#include "engine/core/check.h"

namespace ingot {
namespace {

constexpr const char* kOrCpu = "or use --train.device=cpu";

[[noreturn]] void fail_driver(const DeviceFailure& f) {
    if (f.driver_version == 0) {
        fail("device.no_driver", "train.device = cuda: no NVIDIA driver answers (", f.reason,
             "); install one that supports CUDA ", format_cuda_version(f.runtime_version),
             " or newer, load its kernel module (nvidia-smi shows the devices when it works), ",
             kOrCpu);
    }
    fail("device.driver_too_old", "train.device = cuda: the NVIDIA driver supports CUDA ",
         format_cuda_version(f.driver_version), ", this program runs on CUDA ",
         format_cuda_version(f.runtime_version),
         "; update the driver, build with the CUDA toolkit ", format_cuda_version(f.driver_version),
         ", ", kOrCpu);
}

std::string others_on_it(const std::vector<GpuProcess>& processes) {
    const std::string others = format_gpu_processes(processes);
    return others.empty() ? "no other process on it is known" : "other processes on it: " + others;
}

std::string load_of(const DeviceFailure& f) {
    if (!f.memory) return others_on_it(f.processes);
    return describe_gpu_memory(f.memory->free_bytes, f.memory->total_bytes, f.processes);
}

}  // namespace

std::string format_cuda_version(int version) {
    return str(version / 1000, ".", version % 1000 / 10);
}

void fail_unusable_device(const DeviceFailure& f) {
    const std::string device = str("CUDA device ", f.device_index, f.gpu.empty() ? "" : " (", f.gpu,
                                   f.gpu.empty() ? "" : ")");
    switch (f.kind) {
        case DeviceFailure::Kind::insufficient_driver:
            fail_driver(f);
        case DeviceFailure::Kind::no_device:
            fail("device.none", "train.device = cuda: no CUDA device is visible (", f.reason,
                 "); check CUDA_VISIBLE_DEVICES and nvidia-smi, ", kOrCpu);
        case DeviceFailure::Kind::not_ready:
            fail("device.not_ready", "train.device = cuda: the driver is not ready (", f.reason,
                 "); on machines with NVSwitch start its service (systemctl start "
                 "nvidia-fabricmanager, of the driver's version), ",
                 kOrCpu);
        case DeviceFailure::Kind::busy:
            fail(
                "device.busy", device, " takes no further process (", f.reason,
                "), its compute mode is ", f.compute_mode, ", ", load_of(f),
                "; wait for them or end them, choose another device with CUDA_VISIBLE_DEVICES, or ",
                f.compute_mode == "default" ? "look for the GPU's Xid in dmesg"
                                            : "allow several with nvidia-smi -c DEFAULT");
        case DeviceFailure::Kind::full:
            fail("device.full", device, " has no memory left for another process (", f.reason,
                 f.memory ? "), " : "), how much is free is not known (see nvidia-smi), ",
                 load_of(f),
                 "; wait until there is room, end those that are not needed, or choose another "
                 "device with CUDA_VISIBLE_DEVICES");
        case DeviceFailure::Kind::other:
            break;
    }
    fail("device.unusable", device, " cannot be used: ", f.reason, " (the driver supports CUDA ",
         format_cuda_version(f.driver_version), ", this program runs on CUDA ",
         format_cuda_version(f.runtime_version), "); check nvidia-smi and dmesg, ", kOrCpu);
}

void require_supported(const DeviceInfo& info) {
    ENSURE(info.compute_major >= 8, "device.too_old", "GPU ", info.name, " has compute capability ",
           info.compute_major, ".", info.compute_minor,
           ", 8.0 is needed; use an Ampere card or a newer one, or --train.device=cpu");
}

std::string describe_gpu_memory(std::int64_t free_bytes,
                                std::int64_t total_bytes,
                                const std::vector<GpuProcess>& processes) {
    return str(free_bytes, " of ", total_bytes, " bytes are free; ", others_on_it(processes));
}

std::optional<GpuMemory> memory_of_gpu(const std::string& pci_bus_id, const std::string& library) {
    std::string problem;
    const auto device = NvmlDevice::open(pci_bus_id, &problem, library);
    return device == nullptr ? std::nullopt : device->memory();
}

std::vector<GpuProcess> processes_on_gpu(const std::string& pci_bus_id,
                                         const std::string& library) {
    std::string problem;
    const auto device = NvmlDevice::open(pci_bus_id, &problem, library);
    return device == nullptr ? std::vector<GpuProcess>() : device->processes();
}

}  // namespace ingot
