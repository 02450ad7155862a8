#include "engine/core/device_cuda.h"

#include <cstring>

#include <cuda_runtime.h>

#include "engine/core/cuda_error.h"
#include "engine/core/device_error.h"
#include "engine/core/host.h"

namespace ingot::cuda_runtime {
namespace {

// Throws cuda.call; the sticky error is cleared so that the next call reports its own.
[[noreturn]] void fail_call(cudaError_t status, const std::string& what) {
    cudaGetLastError();
    fail_cuda("cuda.call", what, cudaGetErrorName(status), cudaGetErrorString(status));
}

// One function call per check.
void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess) fail_call(status, call);
}
void check(cudaError_t status, const char* call, std::int64_t size_bytes) {
    if (status != cudaSuccess) fail_call(status, str(call, " of ", size_bytes, " bytes"));
}
void check(cudaError_t status, const char* call, std::int64_t size_bytes, const char* buffer) {
    if (status != cudaSuccess) {
        fail_call(status, str(call, " of ", size_bytes, " bytes for buffer ", buffer));
    }
}

int version_or_zero(cudaError_t (*query)(int*)) {
    int version = 0;
    return query(&version) == cudaSuccess ? version : 0;
}

DeviceFailure::Kind kind_of(cudaError_t status) {
    switch (status) {
        case cudaErrorInsufficientDriver:
            return DeviceFailure::Kind::insufficient_driver;
        case cudaErrorNoDevice:
            return DeviceFailure::Kind::no_device;
        case cudaErrorSystemNotReady:
        case cudaErrorSystemDriverMismatch:
            return DeviceFailure::Kind::not_ready;
        case cudaErrorDevicesUnavailable:
            return DeviceFailure::Kind::busy;
        case cudaErrorMemoryAllocation:  // not even the context of a process fits
            return DeviceFailure::Kind::full;
        default:
            return DeviceFailure::Kind::other;
    }
}

const char* name_of_compute_mode(int mode) {
    switch (mode) {
        case cudaComputeModeDefault:
            return "default";
        case cudaComputeModeExclusiveProcess:
            return "exclusive process";
        case cudaComputeModeProhibited:
            return "prohibited";
        default:
            return "unknown";
    }
}

// "" when the runtime does not say.
std::string pci_bus_id_of(int device_index) {
    char id[32] = "";
    const bool known = cudaDeviceGetPCIBusId(id, sizeof(id), device_index) == cudaSuccess;
    cudaGetLastError();
    return known ? id : "";
}

// Asks for what explains a device that cannot be used; none of it makes a context.
[[noreturn]] void fail_device(cudaError_t status, int device_index) {
    cudaGetLastError();
    DeviceFailure failure;
    failure.kind = kind_of(status);
    failure.reason = cudaGetErrorString(status);
    failure.driver_version = version_or_zero(cudaDriverGetVersion);
    failure.runtime_version = version_or_zero(cudaRuntimeGetVersion);
    failure.device_index = device_index;
    if (failure.kind == DeviceFailure::Kind::busy || failure.kind == DeviceFailure::Kind::full ||
        failure.kind == DeviceFailure::Kind::other) {
        cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, device_index) == cudaSuccess) {
            failure.gpu = properties.name;
        }
        int mode = -1;
        cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device_index);
        cudaGetLastError();
        failure.compute_mode = name_of_compute_mode(mode);
        const std::string pci_bus_id = pci_bus_id_of(device_index);
        failure.memory = memory_of_gpu(pci_bus_id);
        failure.processes = processes_on_gpu(pci_bus_id);
    }
    fail_unusable_device(failure);
}

}  // namespace

void require_usable_device(int device_index) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) fail_device(status, device_index);
    ENSURE(device_index >= 0 && device_index < count, "device.index", "CUDA device ", device_index,
           " was asked for, but ", count, " are visible; check CUDA_VISIBLE_DEVICES");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device_index), "cudaGetDeviceProperties");
    DeviceInfo info;
    info.name = properties.name;
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    require_supported(info);
}

// Makes the context of the process on the device, which a busy device refuses.
void set_device(int device_index) {
    const cudaError_t status = cudaSetDevice(device_index);
    if (status != cudaSuccess) fail_device(status, device_index);
}

void* make_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
}
void destroy_stream(void* stream) noexcept {
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}
void synchronize_stream(void* stream) {
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

void* make_event() {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    return event;
}
void destroy_event(void* event) noexcept {
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
void record_event(void* event, void* stream) {
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
          "cudaEventRecord");
}
void wait_event(void* stream, void* event) {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event)),
          "cudaStreamWaitEvent");
}
bool is_event_complete(void* event) {
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
}
void synchronize_event(void* event) {
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}
double elapsed_ms(void* begin, void* end) {
    float ms = 0.0F;
    check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)),
          "cudaEventElapsedTime");
    return ms;
}

void* allocate(std::int64_t size_bytes, const char* name) {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(size_bytes));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free_bytes = 0;
        std::size_t total_bytes = 0;
        cudaMemGetInfo(&free_bytes, &total_bytes);
        int device_index = 0;
        cudaGetDevice(&device_index);
        fail("memory.out_of_memory", "buffer ", name, " needs ", size_bytes,
             " bytes on the GPU, but ",
             describe_gpu_memory(static_cast<std::int64_t>(free_bytes),
                                 static_cast<std::int64_t>(total_bytes),
                                 processes_on_gpu(pci_bus_id_of(device_index))),
             "; end those that are not needed, or see `--plan` for what to make smaller");
    }
    check(status, "cudaMalloc", size_bytes, name);
    // cudaMemset may return early and runs on the default stream, which the engine's streams do not
    // wait for: without the wait it could erase what they write first.
    check(cudaMemset(data, 0, static_cast<std::size_t>(size_bytes)), "cudaMemset", size_bytes,
          name);
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    return data;
}

void* allocate_pinned(std::int64_t size_bytes, const char* name) {
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, static_cast<std::size_t>(size_bytes));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        fail_pinned_memory(name, size_bytes, available_memory_bytes());
    }
    check(status, "cudaMallocHost", size_bytes, name);
    memset(data, 0, static_cast<std::size_t>(size_bytes));
    return data;
}

void release(void* data, bool is_pinned) noexcept {
    if (is_pinned) {
        cudaFreeHost(data);
    } else {
        cudaFree(data);
    }
}

void copy_async(void* dst, const void* src, std::int64_t size_bytes, void* stream) {
    check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(size_bytes), cudaMemcpyDefault,
                          static_cast<cudaStream_t>(stream)),
          "cudaMemcpyAsync", size_bytes);
}

void fill_zero_async(void* dst, std::int64_t size_bytes, void* stream) {
    check(cudaMemsetAsync(dst, 0, static_cast<std::size_t>(size_bytes),
                          static_cast<cudaStream_t>(stream)),
          "cudaMemsetAsync", size_bytes);
}

DeviceInfo device_info(int device_index) {
    require_usable_device(device_index);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device_index), "cudaGetDeviceProperties");
    DeviceInfo info;
    info.name = properties.name;
    info.pci_bus_id = pci_bus_id_of(device_index);
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    info.num_multiprocessors = properties.multiProcessorCount;
    info.total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    set_device(device_index);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    info.free_bytes = static_cast<std::int64_t>(free_bytes);
    info.driver_version = version_or_zero(cudaDriverGetVersion);
    info.runtime_version = version_or_zero(cudaRuntimeGetVersion);
    return info;
}

}  // namespace ingot::cuda_runtime
