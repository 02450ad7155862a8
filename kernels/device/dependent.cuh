// Programmatic dependent launch (sm_90 and up; elsewhere an ordinary launch): a kernel is set up
// while the one before it in the stream still runs. docs/performance.md has what that gains.
#pragma once

#include "kernels/device/launch.cuh"

namespace ingot::cuda {

// By all threads: the next kernel of the stream may be set up from here on.
__device__ __forceinline__ void let_dependent_start() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Before a kernel of launch_dependent() reads or writes anything: all work before it in the stream
// is complete, and seen, provided that each kernel there was launched without the attribute or
// waited. What it wrote is no `const __restrict__` parameter: such loads may pass the wait, or hit
// what a cache for constant data held before.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// The attribute is set only where the kernel was compiled for sm_90 or up, that is, where
// wait_for_predecessor() waits: PTX of compute_80 translated on such a card would not. Throws as
// check_launch() does, which need not be called after it.
template <class... Params, class... Args>
void launch_dependent(Stream stream,
                      const char* op,
                      const TensorShape& shape,
                      dim3 grid,
                      dim3 block,
                      std::size_t shared_bytes,
                      void (*kernel)(Params...),
                      const Args&... args) {
    cudaFuncAttributes function{};
    CUDA_CHECK(cudaFuncGetAttributes(&function, kernel), op, shape);
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = native(stream);
    config.attrs = &attribute;
    config.numAttrs = function.ptxVersion >= 90 ? 1 : 0;
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
    if (status != cudaSuccess) fail_op("cuda.launch", status, "cudaLaunchKernelEx", op, shape);
}

}  // namespace ingot::cuda
