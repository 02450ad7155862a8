// What every launcher needs: checked runtime calls, the stream's native handle, alignment of views.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "engine/core/device.h"
#include "kernels/device/arithmetic.h"

namespace ingot::cuda {

// Throws cuda.call with the call, its place and the runtime's text. The sticky error is cleared
// first, so that the next call reports its own.
inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
    if (status == cudaSuccess) return;
    cudaGetLastError();
    fail("cuda.call", call, " at ", file, ":", line, ": ", cudaGetErrorName(status), ": ",
         cudaGetErrorString(status), "; rerun under compute-sanitizer to find the first fault");
}

// Call right after a launch: throws cuda.launch naming the op and the tensor that sized the grid.
inline void check_launch(const char* op, const TensorShape& shape) {
    const cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess) return;
    fail("cuda.launch", op, " on ", shape.shape_string(), ": ", cudaGetErrorName(status), ": ",
         cudaGetErrorString(status),
         "; an earlier kernel of the stream may have failed, rerun under compute-sanitizer");
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

// Expands to one function call.
#define CUDA_CHECK(expr) ::ingot::cuda::check_cuda((expr), #expr, __FILE__, __LINE__)
