#include "kernels/gelu.h"

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/cpu_math.h"

namespace ingot {
namespace {

// The tensor looks exactly like the op's input.
void check_like(Stream stream,
                const ConstTensor& tensor,
                const ConstTensor& like,
                const char* what) {
    contract::require_on_device(stream, tensor, what);
    contract::require_dtype("gelu.dtype", tensor, like.dtype, what);
    ENSURE(tensor.same_shape(like), "gelu.shape", what, " is ", tensor.shape_string(), ", must be ",
           like.shape_string());
}

void check(Stream stream, const GeluForward& a) {
    contract::require_on_device(stream, a.inp, "gelu_forward: inp");
    contract::require_float("gelu.dtype", a.inp, "gelu_forward: inp");
    check_like(stream, a.out, a.inp, "gelu_forward: out");
}

void check(Stream stream, const GeluBackward& a) {
    contract::require_on_device(stream, a.inp, "gelu_backward: inp");
    contract::require_float("gelu.dtype", a.inp, "gelu_backward: inp");
    check_like(stream, a.dout, a.inp, "gelu_backward: dout");
    check_like(stream, a.dinp, a.inp, "gelu_backward: dinp");
}

}  // namespace

void gelu_forward(Stream stream, const GeluForward& args) {
    check(stream, args);
    const OpRange range(stream, "gelu_forward",
                        {.bytes = bytes_of_tensors(args.out, args.inp), .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::gelu_forward(stream, args);
    }
    stream.run([args] { cpu::gelu_forward(args); });
}

void gelu_backward(Stream stream, const GeluBackward& args) {
    check(stream, args);
    const OpRange range(
        stream, "gelu_backward",
        {.bytes = bytes_of_tensors(args.dinp, args.dout, args.inp), .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::gelu_backward(stream, args);
    }
    stream.run([args] { cpu::gelu_backward(args); });
}

namespace cpu {

void gelu_forward(const GeluForward& a) {
    dispatch_float(a.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t count = a.inp.numel();
        const T* inp = a.inp.ptr<T>();
        T* out = a.out.ptr<T>();
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = from_float<T>(cpu_math::gelu(to_float(inp[i])));
    });
}

void gelu_backward(const GeluBackward& a) {
    dispatch_float(a.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t count = a.inp.numel();
        const T* inp = a.inp.ptr<T>();
        const T* dout = a.dout.ptr<T>();
        T* dinp = a.dinp.ptr<T>();
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) {
            const float slope = cpu_math::gelu_derivative(to_float(inp[i]));
            dinp[i] = from_float<T>(to_float(dout[i]) * slope);
        }
    });
}

}  // namespace cpu
}  // namespace ingot
