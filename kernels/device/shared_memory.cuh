// How much dynamic shared memory a block may use. The file that includes this is compiled with
// INGOT_SHARED_MEMORY_LIMIT (kernels/CMakeLists.txt).
#pragma once

#include <algorithm>

#include "kernels/device/launch.cuh"

namespace ingot::cuda {

// Bytes: what the current device offers, or less when the build asks for it, to run the code that
// other cards take. `op` and `shape` are for the words of an error.
inline int shared_memory_limit_bytes(const char* op, const TensorShape& shape) {
    const int offered = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, op, shape);
    constexpr int kBuild = INGOT_SHARED_MEMORY_LIMIT;
    return kBuild > 0 ? std::min(kBuild, offered) : offered;
}

}  // namespace ingot::cuda
