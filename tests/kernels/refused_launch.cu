#include "kernels/device/dependent.cuh"
#include "kernels/device/launch.cuh"
#include "tests/kernels/refused_launch.h"

namespace ingot::test {
namespace {

constexpr int kTooManyThreads = 4096;  // a block has at most 1024
constexpr int kTooManyBytes = 1 << 30;

__global__ void add_one_kernel(float* value) {
    cuda::wait_for_predecessor();
    *value += 1.0F;
}

}  // namespace

void launch_with_too_many_threads(Stream stream, const TensorShape& shape) {
    float* const nothing = nullptr;
    add_one_kernel<<<1, kTooManyThreads, 0, cuda::native(stream)>>>(nothing);
    cuda::check_launch("refused", shape);
}

void launch_dependent_with_too_many_threads(Stream stream, const TensorShape& shape) {
    float* const nothing = nullptr;
    cuda::launch_dependent(stream, "refused", shape, dim3(1), dim3(kTooManyThreads), 0,
                           add_one_kernel, nothing);
}

void ask_for_too_much_shared_memory(const TensorShape& shape) {
    CUDA_CHECK(cudaFuncSetAttribute(add_one_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    kTooManyBytes),
               "refused", shape);
}

void launch_allowed(Stream stream, Tensor out) {
    cuda::launch_dependent(stream, "allowed", out, dim3(1), dim3(1), 0, add_one_kernel,
                           out.ptr<float>());
}

}  // namespace ingot::test
