// Elementwise: a thread stores one pack of 16 bytes, so that a warp writes whole sectors at once;
// the last thread takes what is left over.
#include "kernels/cast.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(To* out, const From* inp, std::int64_t numel, bool is_aligned) {
    constexpr int kWidth = kPackWidth<To>;
    const std::int64_t begin =
        (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
    if (is_aligned && begin + kWidth <= numel) {
        const auto pack = Pack<From, kWidth>::load(inp + begin);
        float values[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            values[i] = pack.get(i);
        Pack<To, kWidth>::from(values).store(out + begin);
        return;
    }
    for (std::int64_t i = begin; i < min(begin + kWidth, numel); ++i)
        out[i] = narrow<To>(widen(inp[i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* out, float value, std::int64_t numel, bool is_aligned) {
    constexpr int kWidth = kPackWidth<T>;
    const std::int64_t begin =
        (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
    if (is_aligned && begin + kWidth <= numel) {
        float values[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            values[i] = value;
        Pack<T, kWidth>::from(values).store(out + begin);
        return;
    }
    for (std::int64_t i = begin; i < min(begin + kWidth, numel); ++i)
        out[i] = narrow<T>(value);
}

template <class To>
unsigned blocks_for(std::int64_t numel) {
    return static_cast<unsigned>(ceil_div<std::int64_t>(numel, kThreads * kPackWidth<To>));
}

}  // namespace

void cast(Stream stream, const Cast& args) {
    const std::int64_t numel = args.inp.numel();
    if (numel == 0) return;
    const bool is_aligned = are_aligned(args.out, args.inp);
    dispatch_float(args.out.dtype, [&](auto to) {
        using To = decltype(to);
        dispatch_float(args.inp.dtype, [&](auto from) {
            using From = decltype(from);
            cast_kernel<To, From><<<blocks_for<To>(numel), kThreads, 0, native(stream)>>>(
                args.out.ptr<To>(), args.inp.ptr<From>(), numel, is_aligned);
        });
    });
    check_launch("cast", args.inp);
}

void fill(Stream stream, const Fill& args) {
    const std::int64_t numel = args.out.numel();
    if (numel == 0) return;
    dispatch_float(args.out.dtype, [&](auto zero) {
        using T = decltype(zero);
        fill_kernel<T><<<blocks_for<T>(numel), kThreads, 0, native(stream)>>>(
            args.out.ptr<T>(), args.value, numel, are_aligned(args.out));
    });
    check_launch("fill", args.out);
}

}  // namespace ingot::cuda
