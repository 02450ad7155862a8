#include "engine/core/nvml.h"

#include <algorithm>
#include <dlfcn.h>
#include <fstream>
#include <unistd.h>

#include "engine/core/check.h"

namespace ingot {
namespace {

// The few declarations of the library's interface that are used here.
using Status = int;
constexpr Status kSuccess = 0;
constexpr Status kInsufficientSize = 7;
constexpr unsigned kTemperatureGpu = 0;
constexpr unsigned kClockSm = 1;
constexpr unsigned kClockMemory = 2;
constexpr unsigned long long kNotAvailable = ~0ULL;

struct Utilization {
    unsigned gpu, memory;  // percent
};
struct Memory {
    unsigned long long total, free, used;  // bytes
};
struct ProcessInfo {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct Reason {
    std::uint64_t bit;
    const char* word;
    bool slows_down;
};
constexpr Reason kReasons[kNumClockReasons] = {
    {0x1, "idle", false},
    {0x2, "application clocks", false},
    {0x4, "power cap", true},
    {0x8, "slowdown (hardware)", true},
    {0x10, "sync boost", true},
    {0x20, "thermal slowdown (software)", true},
    {0x40, "thermal slowdown (hardware)", true},
    {0x80, "power brake", true},
    {0x100, "display clocks", false},
};

std::string name_of_process(std::int64_t pid) {
    std::ifstream file(str("/proc/", pid, "/comm"));
    std::string name;
    std::getline(file, name);
    return name;
}

std::string gibibytes(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
    return text;
}

}  // namespace

// The functions that were found; null: the library has no such function.
struct NvmlDevice::Library {
    void* handle = nullptr;
    bool is_initialized = false;
    Status (*init)() = nullptr;
    Status (*shutdown)() = nullptr;
    const char* (*error_string)(Status) = nullptr;
    Status (*handle_by_pci)(const char*, void**) = nullptr;
    Status (*utilization)(void*, Utilization*) = nullptr;
    Status (*memory)(void*, Memory*) = nullptr;
    Status (*power)(void*, unsigned*) = nullptr;  // milliwatts
    Status (*temperature)(void*, unsigned, unsigned*) = nullptr;
    Status (*clock)(void*, unsigned, unsigned*) = nullptr;  // MHz
    Status (*clock_reasons)(void*, unsigned long long*) = nullptr;
    Status (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;

    ~Library() {
        if (is_initialized && shutdown != nullptr) shutdown();
        if (handle != nullptr) dlclose(handle);
    }

    // The first of the names that the library has.
    template <class Function>
    void find(Function* function, std::initializer_list<const char*> names) {
        for (const char* name : names) {
            *function = reinterpret_cast<Function>(dlsym(handle, name));
            if (*function != nullptr) return;
        }
    }

    void find_all() {
        find(&init, {"nvmlInit_v2"});
        find(&shutdown, {"nvmlShutdown"});
        find(&error_string, {"nvmlErrorString"});
        find(&handle_by_pci, {"nvmlDeviceGetHandleByPciBusId_v2"});
        find(&utilization, {"nvmlDeviceGetUtilizationRates"});
        find(&memory, {"nvmlDeviceGetMemoryInfo"});
        find(&power, {"nvmlDeviceGetPowerUsage"});
        find(&temperature, {"nvmlDeviceGetTemperature"});
        find(&clock, {"nvmlDeviceGetClockInfo"});
        find(&clock_reasons, {"nvmlDeviceGetCurrentClocksEventReasons",
                              "nvmlDeviceGetCurrentClocksThrottleReasons"});
        find(&processes, {"nvmlDeviceGetComputeRunningProcesses_v3",
                          "nvmlDeviceGetComputeRunningProcesses_v2"});
    }

    std::string text_of(Status status) const {
        const char* text = error_string == nullptr ? nullptr : error_string(status);
        return text == nullptr ? str("error ", status) : text;
    }
};

NvmlDevice::NvmlDevice(std::unique_ptr<Library> library, void* device)
    : library_(std::move(library)), device_(device) {}
NvmlDevice::~NvmlDevice() = default;

std::unique_ptr<NvmlDevice> NvmlDevice::open(const std::string& pci_bus_id,
                                             std::string* problem,
                                             const std::string& library_path) {
    auto library = std::make_unique<Library>();
    library->handle = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library->handle == nullptr) {
        const char* reason = dlerror();
        *problem = reason == nullptr ? str(library_path, " cannot be loaded") : reason;
        return nullptr;
    }
    library->find_all();
    if (library->init == nullptr || library->handle_by_pci == nullptr) {
        *problem = str(library_path, " has no nvmlInit_v2 or nvmlDeviceGetHandleByPciBusId_v2");
        return nullptr;
    }
    const Status initialized = library->init();
    if (initialized != kSuccess) {
        *problem = str(library_path, ": nvmlInit_v2: ", library->text_of(initialized));
        return nullptr;
    }
    library->is_initialized = true;
    void* device = nullptr;
    const Status found = library->handle_by_pci(pci_bus_id.c_str(), &device);
    if (found != kSuccess) {
        *problem = str(library_path, ": no GPU at ", pci_bus_id, ": ", library->text_of(found));
        return nullptr;
    }
    return std::unique_ptr<NvmlDevice>(new NvmlDevice(std::move(library), device));
}

GpuSample NvmlDevice::sample() const {
    const Library& nvml = *library_;
    GpuSample sample;
    Utilization utilization{};
    if (nvml.utilization != nullptr && nvml.utilization(device_, &utilization) == kSuccess) {
        sample.utilization_percent = utilization.gpu;
    }
    if (const auto known = memory()) sample.memory_used_bytes = known->used_bytes;
    unsigned value = 0;
    if (nvml.power != nullptr && nvml.power(device_, &value) == kSuccess) {
        sample.power_w = value / 1000.0;
    }
    if (nvml.temperature != nullptr &&
        nvml.temperature(device_, kTemperatureGpu, &value) == kSuccess) {
        sample.temperature_c = value;
    }
    if (nvml.clock != nullptr && nvml.clock(device_, kClockSm, &value) == kSuccess) {
        sample.sm_mhz = value;
    }
    if (nvml.clock != nullptr && nvml.clock(device_, kClockMemory, &value) == kSuccess) {
        sample.memory_mhz = value;
    }
    unsigned long long reasons = 0;
    if (nvml.clock_reasons != nullptr && nvml.clock_reasons(device_, &reasons) == kSuccess) {
        sample.clock_reasons = reasons;
    }
    return sample;
}

std::optional<GpuMemory> NvmlDevice::memory() const {
    Memory memory{};
    if (library_->memory == nullptr || library_->memory(device_, &memory) != kSuccess) return {};
    return GpuMemory{static_cast<std::int64_t>(memory.total),
                     static_cast<std::int64_t>(memory.free),
                     static_cast<std::int64_t>(memory.used)};
}

std::vector<GpuProcess> NvmlDevice::processes() const {
    if (library_->processes == nullptr) return {};
    // The library says how many there are when the space does not suffice; more may come meanwhile.
    constexpr unsigned kMost = 1 << 16;  // whatever a broken library says
    std::vector<ProcessInfo> infos(64);
    unsigned count = 0;
    Status status = kInsufficientSize;
    for (int attempt = 0; attempt < 3 && status == kInsufficientSize; ++attempt) {
        if (count > infos.size()) infos.resize(2 * std::size_t{std::min(count, kMost)});
        count = static_cast<unsigned>(infos.size());
        status = library_->processes(device_, &count, infos.data());
    }
    if (status != kSuccess || count > infos.size()) return {};
    std::vector<GpuProcess> processes;
    for (unsigned i = 0; i < count; ++i) {
        GpuProcess process{infos[i].pid, name_of_process(infos[i].pid), std::nullopt};
        if (infos[i].used_bytes != kNotAvailable) {
            process.used_bytes = static_cast<std::int64_t>(infos[i].used_bytes);
        }
        processes.push_back(process);
    }
    return processes;
}

std::string format_gpu_processes(const std::vector<GpuProcess>& processes) {
    std::string text;
    for (const GpuProcess& process : processes) {
        if (process.pid == getpid()) continue;
        text += str(text.empty() ? "" : ", ", process.pid, " ",
                    process.name.empty() ? "(unknown here)" : process.name);
        if (process.used_bytes) {
            text += str(" ", gibibytes(*process.used_bytes), " (", *process.used_bytes, " bytes)");
        }
    }
    return text;
}

std::vector<std::string> clock_reason_words(std::uint64_t reasons) {
    std::vector<std::string> words;
    for (const Reason& reason : kReasons) {
        if ((reasons & reason.bit) != 0) words.push_back(reason.word);
        reasons &= ~reason.bit;
    }
    for (std::uint64_t bit = 1; reasons != 0; bit <<= 1) {
        if ((reasons & bit) == 0) continue;
        words.push_back(str("reason ", bit));
        reasons &= ~bit;
    }
    return words;
}

bool is_throttled(std::uint64_t reasons) {
    for (const Reason& reason : kReasons) {
        if (reason.slows_down && (reasons & reason.bit) != 0) return true;
    }
    return false;
}

}  // namespace ingot
