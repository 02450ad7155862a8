// Elementwise, one pack a thread. With s = sigmoid(2u): out = x s, since 0.5 (1 + tanh u) = s; and
// out' = s + 2 x s (1 - s) u'. s (1 - s) is formed without cancellation from e = exp(-2|u|).
#include "kernels/device/gelu.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"
#include "kernels/gelu.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    gelu_forward_kernel(T* out, const T* inp, std::int64_t numel) {
    const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
    if (i >= numel) return;
    const Pack<T, W> x = Pack<T, W>::load(inp + i);
    float y[W];
#pragma unroll
    for (int k = 0; k < W; ++k)
        y[k] = gelu_value<T>(x.get(k));
    Pack<T, W>::from(y).store(out + i);
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(T* dinp, const T* dout, const T* inp, std::int64_t numel) {
    const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
    if (i >= numel) return;
    const Pack<T, W> x = Pack<T, W>::load(inp + i);
    const Pack<T, W> d = Pack<T, W>::load(dout + i);
    float y[W];
#pragma unroll
    for (int k = 0; k < W; ++k)
        y[k] = d.get(k) * gelu_slope<T>(x.get(k));
    Pack<T, W>::from(y).store(dinp + i);
}

unsigned blocks_for(std::int64_t numel, int width) {
    return static_cast<unsigned>(ceil_div<std::int64_t>(numel, kThreads * width));
}

}  // namespace

void gelu_forward(Stream stream, const GeluForward& args) {
    const std::int64_t numel = args.inp.numel();
    if (numel == 0) return;
    dispatch_float(args.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int W = kPackWidth<T>;
        T* out = args.out.ptr<T>();
        const T* inp = args.inp.ptr<T>();
        if (numel % W == 0 && are_aligned(args.out, args.inp)) {
            gelu_forward_kernel<T, W>
                <<<blocks_for(numel, W), kThreads, 0, native(stream)>>>(out, inp, numel);
        } else {
            gelu_forward_kernel<T, 1>
                <<<blocks_for(numel, 1), kThreads, 0, native(stream)>>>(out, inp, numel);
        }
    });
    check_launch("gelu_forward", args.inp);
}

void gelu_backward(Stream stream, const GeluBackward& args) {
    const std::int64_t numel = args.inp.numel();
    if (numel == 0) return;
    dispatch_float(args.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int W = kPackWidth<T>;
        T* dinp = args.dinp.ptr<T>();
        const T* dout = args.dout.ptr<T>();
        const T* inp = args.inp.ptr<T>();
        if (numel % W == 0 && are_aligned(args.dinp, args.dout, args.inp)) {
            gelu_backward_kernel<T, W>
                <<<blocks_for(numel, W), kThreads, 0, native(stream)>>>(dinp, dout, inp, numel);
        } else {
            gelu_backward_kernel<T, 1>
                <<<blocks_for(numel, 1), kThreads, 0, native(stream)>>>(dinp, dout, inp, numel);
        }
    });
    check_launch("gelu_backward", args.inp);
}

}  // namespace ingot::cuda
