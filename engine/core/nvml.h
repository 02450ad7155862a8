// What the driver's management library says about one GPU: load, memory, power, temperature,
// clocks, what slows it down, and whose processes are on it.
//
// The library (libnvidia-ml.so.1) comes with the driver and is loaded at run time; nothing of it is
// needed to build. A machine without it, or a value that a GPU does not report, is no error: the
// value is absent. Calls take up to some milliseconds: not for the thread that feeds the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

struct GpuSample {
    std::optional<double> utilization_percent;  // of the last moments: share with a kernel running
    std::optional<std::int64_t> memory_used_bytes;  // of all processes
    std::optional<double> power_w;
    std::optional<double> temperature_c;
    std::optional<double> sm_mhz, memory_mhz;    // present clocks
    std::optional<std::uint64_t> clock_reasons;  // bits of the library; clock_reason_words()
};

// "power cap", "thermal slowdown (hardware)", ... of the set bits, in the order of the bits. Idle
// is a word, too.
std::vector<std::string> clock_reason_words(std::uint64_t reasons);
// Whether a bit means that the GPU runs slower than it could: not idle, not clocks set by somebody.
bool is_throttled(std::uint64_t reasons);
constexpr int kNumClockReasons = 9;

struct GpuMemory {
    std::int64_t total_bytes = 0, free_bytes = 0, used_bytes = 0;  // used: by all processes
};

struct GpuProcess {
    std::int64_t pid = 0;
    std::string name;  // /proc/PID/comm; "" when this machine does not know it
    std::optional<std::int64_t> used_bytes;  // on this GPU
};

// "4711 python3 61.30 GiB, 4712 (unknown here)"; "" for none. This process is left out.
std::string format_gpu_processes(const std::vector<GpuProcess>& processes);

class NvmlDevice {
  public:
    static constexpr const char* kLibrary = "libnvidia-ml.so.1";

    // The GPU in this PCI slot ("0000:3B:00.0", as the CUDA runtime names it). Null when the
    // library is missing or refuses; *problem then says why.
    static std::unique_ptr<NvmlDevice> open(const std::string& pci_bus_id,
                                            std::string* problem,
                                            const std::string& library = kLibrary);
    ~NvmlDevice();
    NvmlDevice(const NvmlDevice&) = delete;
    NvmlDevice& operator=(const NvmlDevice&) = delete;

    GpuSample sample() const;
    std::optional<GpuMemory> memory() const;
    std::vector<GpuProcess> processes() const;  // empty also where they cannot be asked for

  private:
    struct Library;
    NvmlDevice(std::unique_ptr<Library> library, void* device);

    std::unique_ptr<Library> library_;
    void* device_;
};

}  // namespace ingot
