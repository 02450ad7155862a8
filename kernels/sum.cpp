#include "kernels/sum.h"

#include <algorithm>

#include "engine/core/op_range.h"
#include "kernels/contract.h"

namespace ingot {
namespace {

void check(Stream stream, const Sum& a) {
    contract::require_on_device(stream, a.inp, "sum: inp");
    contract::require_dtype("sum.dtype", a.inp, DType::f32, "sum: inp");
    contract::require_on_device(stream, a.out, "sum: out");
    contract::require_shape("sum.shape", a.out, {1}, "sum: out");
    contract::require_dtype("sum.dtype", a.out, DType::f32, "sum: out");
}

}  // namespace

void sum(Stream stream, const Sum& args) {
    check(stream, args);
    const OpRange range(stream, "sum",
                        {.bytes = bytes_of_tensors(args.out, args.inp), .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::sum(stream, args);
    }
    stream.run([args] { cpu::sum(args); });
}

namespace cpu {

// One thread: the inputs are the losses of one micro-batch.
void sum(const Sum& a) {
    const float* inp = a.inp.ptr<float>();
    float* out = a.out.ptr<float>();
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < a.inp.numel(); ++i)
        total += inp[i];
    *out = static_cast<float>(a.accumulate ? *out + total : total);
}

}  // namespace cpu
}  // namespace ingot
