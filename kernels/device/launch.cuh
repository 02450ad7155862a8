// What every launcher needs: checked runtime calls, the stream's native handle, alignment of views.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "engine/core/cuda_error.h"
#include "engine/core/device.h"
#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

// Throws `code` with the op, the tensor that the call is about, the call, the runtime's text and
// the fix. The sticky error is cleared first, so that the next call reports its own.
[[noreturn]] inline void fail_op(const char* code,
                                 cudaError_t status,
                                 const char* call,
                                 const char* op,
                                 const TensorShape& shape) {
    cudaGetLastError();
    fail_cuda(code, str(op, " on ", shape.shape_string(), ": ", call), cudaGetErrorName(status),
              cudaGetErrorString(status));
}

// Throws cuda.call.
inline void check_cuda(cudaError_t status,
                       const char* call,
                       const char* op,
                       const TensorShape& shape) {
    if (status != cudaSuccess) fail_op("cuda.call", status, call, op, shape);
}

// Call right after a launch: throws cuda.launch naming the op and the tensor that sized the grid.
inline void check_launch(const char* op, const TensorShape& shape) {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) fail_op("cuda.launch", status, "kernel launch", op, shape);
}

// Blocks of a grid along x; throws cuda.grid when a grid cannot have as many.
inline unsigned grid_blocks(const char* op, const TensorShape& shape, std::int64_t blocks) {
    constexpr std::int64_t kMost = 2147483647;
    if (blocks > kMost) {
        fail("cuda.grid", op, " on ", shape.shape_string(), " needs ", blocks,
             " blocks, a grid has at most ", kMost, "; split the batch");
    }
    return static_cast<unsigned>(blocks);
}

inline cudaStream_t native(Stream stream) {
    return static_cast<cudaStream_t>(stream.native());
}

inline bool is_aligned(const void* pointer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// Whether all pointers (null views included) start at a multiple of 16 bytes.
template <class... Views>
bool are_aligned(const Views&... views) {
    return (is_aligned(views.data, 16) && ...);
}

}  // namespace ingot::cuda

// Expands to one function call. `op` and `shape` say whose call it is.
#define CUDA_CHECK(expr, op, shape) ::ingot::cuda::check_cuda((expr), #expr, (op), (shape))

namespace ingot::cuda {

// Of the current device.
inline int device_attribute(cudaDeviceAttr what, const char* op, const TensorShape& shape) {
    int device = 0;
    int value = 0;
    CUDA_CHECK(cudaGetDevice(&device), op, shape);
    CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device), op, shape);
    return value;
}

}  // namespace ingot::cuda
