// The CUDA runtime behind engine/core/device.h, without its types. Defined in device_cuda.cpp,
// which only a CUDA build compiles; call these inside `if constexpr (kHasCuda)`. Every failure
// throws cuda.call with the call, the bytes, the runtime's own text and a fix.
#pragma once

#include <cstdint>

#include "engine/core/device.h"

namespace ingot::cuda_runtime {

void require_usable_device(int device_index);  // driver, number of devices, index and sm_80
void set_device(int device_index);

void* make_stream();
void destroy_stream(void* stream) noexcept;
void synchronize_stream(void* stream);

void* make_event();
void destroy_event(void* event) noexcept;
void record_event(void* event, void* stream);
void wait_event(void* stream, void* event);
bool is_event_complete(void* event);
void synchronize_event(void* event);
double elapsed_ms(void* begin, void* end);

void* allocate(std::int64_t size_bytes, const char* name);
void* allocate_pinned(std::int64_t size_bytes, const char* name);
void release(void* data, bool is_pinned) noexcept;
void copy_async(void* dst, const void* src, std::int64_t size_bytes, void* stream);
void fill_zero_async(void* dst, std::int64_t size_bytes, void* stream);

DeviceInfo device_info(int device_index);

}  // namespace ingot::cuda_runtime
