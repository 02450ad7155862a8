// One block, fp64 inside: the input is a micro-batch of losses, a few hundred KB.
#include "kernels/device/launch.cuh"
#include "kernels/device/reduce.cuh"
#include "kernels/sum.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads)
    sum_kernel(float* out, const float* __restrict__ inp, std::int64_t numel, bool accumulate) {
    __shared__ double shared[kThreads / 32];
    double sum = 0.0;
#pragma unroll 8
    for (std::int64_t i = threadIdx.x; i < numel; i += kThreads)
        sum += static_cast<double>(inp[i]);
    const double total = block_sum<kThreads / 32>(sum, shared);
    if (threadIdx.x == 0) out[0] = static_cast<float>(accumulate ? out[0] + total : total);
}

}  // namespace

void sum(Stream stream, const Sum& args) {
    sum_kernel<<<1, kThreads, 0, native(stream)>>>(args.out.ptr<float>(), args.inp.ptr<float>(),
                                                   args.inp.numel(), args.accumulate);
    check_launch("sum", args.inp);
}

}  // namespace ingot::cuda
