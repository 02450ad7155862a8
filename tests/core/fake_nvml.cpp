// The driver's management library as tests want it: one GPU at 0000:3B:00.0 whose values
// fake_nvml_set() changes. A value set to "not supported" makes its function return status 3.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7;

struct ProcessInfo {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

std::map<std::string, std::int64_t>& values() {
    static std::map<std::string, std::int64_t> map;
    return map;
}
std::vector<ProcessInfo>& processes() {
    static std::vector<ProcessInfo> all;
    return all;
}

int device_marker = 0;

template <class Number>
int answer(const void* device, const char* name, Number* out) {
    if (device != &device_marker) return kInvalidArgument;
    const auto value = values().find(name);
    if (value == values().end()) return kNotSupported;
    *out = static_cast<Number>(value->second);
    return 0;
}

}  // namespace

extern "C" {

void fake_nvml_reset() {
    values().clear();
    processes().clear();
}
void fake_nvml_set(const char* name, std::int64_t value) {
    values()[name] = value;
}
std::int64_t fake_nvml_get(const char* name) {
    return values()[name];
}
void fake_nvml_add_process(unsigned pid, unsigned long long used_bytes) {
    processes().push_back({pid, used_bytes, 0xffffffffU, 0xffffffffU});
}

int nvmlInit_v2() {
    ++values()["init calls"];
    const auto failure = values().find("init fails");
    return failure == values().end() ? 0 : static_cast<int>(failure->second);
}
int nvmlShutdown() {
    ++values()["shutdown calls"];
    return 0;
}
const char* nvmlErrorString(int status) {
    if (values().count("error text missing") != 0) return nullptr;
    return status == kNotFound ? "Not Found" : "Driver Not Loaded";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
    if (std::strcmp(id, "0000:3B:00.0") != 0) return kNotFound;
    *device = &device_marker;
    return 0;
}
struct Utilization {
    unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, Utilization* out) {
    out->memory = 1;
    return answer(device, "utilization", &out->gpu);
}
struct Memory {
    unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, Memory* out) {
    out->total = 100;
    out->free = 1;
    answer(device, "memory total", &out->total);
    answer(device, "memory free", &out->free);
    return answer(device, "memory used", &out->used);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return answer(device, "milliwatts", out);
}
int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* out) {
    return sensor == 0 ? answer(device, "temperature", out) : kInvalidArgument;
}
int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* out) {
    if (type == 1) return answer(device, "sm clock", out);
    return type == 2 ? answer(device, "memory clock", out) : kInvalidArgument;
}
// The newer name of this function is missing, as in older drivers.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
    return answer(device, "reasons", out);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* out) {
    if (device != &device_marker) return kInvalidArgument;
    const unsigned space = *count;
    *count = static_cast<unsigned>(processes().size());
    if (const auto claim = values().find("processes claimed"); claim != values().end()) {
        *count = static_cast<unsigned>(claim->second);
        return static_cast<int>(values()["processes status"]);
    }
    if (space < *count) return kInsufficientSize;
    for (unsigned i = 0; i < *count; ++i)
        out[i] = processes()[i];
    return 0;
}

}  // extern "C"
