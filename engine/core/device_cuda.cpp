#include "engine/core/device_cuda.h"

#include <cuda_runtime.h>

namespace ingot::cuda_runtime {
namespace {

// One function call per check; the sticky error is cleared so that the next call reports its own.
void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    cudaGetLastError();
    fail("cuda.call", call, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

int version_or_zero(cudaError_t (*query)(int*)) {
    int version = 0;
    return query(&version) == cudaSuccess ? version : 0;
}

}  // namespace

void require_usable_device(int device_index) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        cudaGetLastError();
        fail("device.unusable", "train.device = cuda: ", cudaGetErrorString(status),
             " (driver supports CUDA ", version_or_zero(cudaDriverGetVersion),
             ", built with runtime ", version_or_zero(cudaRuntimeGetVersion),
             "); update the NVIDIA driver, check nvidia-smi, or use --train.device=cpu");
    }
    ENSURE(device_index >= 0 && device_index < count, "device.index", "CUDA device ", device_index,
           " was asked for, but ", count, " are visible; check CUDA_VISIBLE_DEVICES");
    const DeviceInfo info = device_info(device_index);
    ENSURE(info.compute_major >= 8, "device.too_old", "GPU ", info.name, " has compute capability ",
           info.compute_major, ".", info.compute_minor,
           ", 8.0 is needed; use an Ampere card or a newer one, or --train.device=cpu");
}

void set_device(int device_index) {
    check(cudaSetDevice(device_index), "cudaSetDevice");
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
        fail("memory.out_of_memory", "buffer ", name, " needs ", size_bytes,
             " bytes on the GPU, but ", free_bytes, " of ", total_bytes,
             " are free; see `--plan` for what to make smaller");
    }
    check(status, "cudaMalloc");
    // cudaMemset may return early and runs on the default stream, which the engine's streams do not
    // wait for: without the wait it could erase what they write first.
    check(cudaMemset(data, 0, static_cast<std::size_t>(size_bytes)), "cudaMemset");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    return data;
}

void* allocate_pinned(std::int64_t size_bytes, const char* name) {
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, static_cast<std::size_t>(size_bytes));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        fail("memory.out_of_memory", "buffer ", name, " needs ", size_bytes,
             " bytes of pinned host memory, which the host refused");
    }
    check(status, "cudaMallocHost");
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
          "cudaMemcpyAsync");
}

void fill_zero_async(void* dst, std::int64_t size_bytes, void* stream) {
    check(cudaMemsetAsync(dst, 0, static_cast<std::size_t>(size_bytes),
                          static_cast<cudaStream_t>(stream)),
          "cudaMemsetAsync");
}

DeviceInfo device_info(int device_index) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device_index), "cudaGetDeviceProperties");
    DeviceInfo info;
    info.name = properties.name;
    char pci_bus_id[32] = "";
    check(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), device_index),
          "cudaDeviceGetPCIBusId");
    info.pci_bus_id = pci_bus_id;
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
