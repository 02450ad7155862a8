#include "kernels/cast.h"

#include "engine/core/op_range.h"
#include "kernels/contract.h"

namespace ingot {
namespace {

void check(Stream stream, const Cast& a) {
    contract::require_on_device(stream, a.out, "cast: out");
    contract::require_on_device(stream, a.inp, "cast: inp");
    contract::require_float("cast.dtype", a.out, "cast: out");
    contract::require_float("cast.dtype", a.inp, "cast: inp");
    ENSURE(a.out.numel() == a.inp.numel(), "cast.shape", "cast: out is ", a.out.shape_string(),
           ", must have the ", a.inp.numel(), " elements of inp ", a.inp.shape_string());
}

void check(Stream stream, const Fill& a) {
    contract::require_on_device(stream, a.out, "fill: out");
    contract::require_float("cast.dtype", a.out, "fill: out");
}

}  // namespace

void cast(Stream stream, const Cast& args) {
    check(stream, args);
    const OpRange range(stream, "cast",
                        {.bytes = bytes_of_tensors(args.out, args.inp), .dtype = args.out.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::cast(stream, args);
    }
    stream.run([args] { cpu::cast(args); });
}

void fill(Stream stream, const Fill& args) {
    check(stream, args);
    const OpRange range(stream, "fill",
                        {.bytes = bytes_of_tensors(args.out), .dtype = args.out.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::fill(stream, args);
    }
    stream.run([args] { cpu::fill(args); });
}

namespace cpu {

void cast(const Cast& a) {
    dispatch_float(a.out.dtype, [&](auto to) {
        dispatch_float(a.inp.dtype, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            const From* inp = a.inp.ptr<From>();
            To* out = a.out.ptr<To>();
#pragma omp parallel for simd schedule(static)
            for (std::int64_t i = 0; i < a.inp.numel(); ++i)
                out[i] = from_float<To>(to_float(inp[i]));
        });
    });
}

void fill(const Fill& a) {
    dispatch_float(a.out.dtype, [&](auto zero) {
        using T = decltype(zero);
        const T value = from_float<T>(a.value);
        T* out = a.out.ptr<T>();
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < a.out.numel(); ++i)
            out[i] = value;
    });
}

}  // namespace cpu
}  // namespace ingot
