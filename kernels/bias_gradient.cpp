#include "kernels/bias_gradient.h"

#include <algorithm>

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/device/bias_gradient_grid.h"

namespace ingot {
namespace {

void check(Stream stream, const BiasGradient& a) {
    contract::require_on_device(stream, a.dout, "bias_gradient: dout");
    contract::require_on_device(stream, a.dbias, "bias_gradient: dbias");
    contract::require_float("bias_gradient.dtype", a.dout, "bias_gradient: dout");
    contract::require_float("bias_gradient.dtype", a.dbias, "bias_gradient: dbias");
    ENSURE(a.dout.num_dims >= 1 && a.dout.dim(-1) >= 1, "bias_gradient.shape",
           "bias_gradient: dout is ", a.dout.shape_string(), ", must be (..., OC) with OC >= 1");
    contract::require_row("bias_gradient.shape", a.dout, "bias_gradient: dout");
    const std::int64_t OC = a.dout.dim(-1);
    contract::require_shape("bias_gradient.shape", a.dbias, {OC}, "bias_gradient: dbias");
    contract::require_scratch("bias_gradient.scratch", stream, a.scratch,
                              bias_gradient_scratch_bytes(stream.device(), a.dout.rows(), OC),
                              "bias_gradient: scratch");
}

// Threads own columns, so the order of the sum over rows is fixed.
template <class T, class G>
void sum_columns(const BiasGradient& a) {
    constexpr std::int64_t kColumns = 128;  // one block's sums stay in the first-level cache
    const std::int64_t N = a.dout.rows();
    const std::int64_t OC = a.dout.dim(-1);
    const T* dout = a.dout.ptr<T>();
    G* dbias = a.dbias.ptr<G>();
#pragma omp parallel for schedule(static)
    for (std::int64_t begin = 0; begin < OC; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, OC - begin);
        double sums[kColumns] = {};
        for (std::int64_t n = 0; n < N; ++n) {
            const T* row = dout + n * OC + begin;
            for (std::int64_t i = 0; i < count; ++i)
                sums[i] += to_float(row[i]);
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const double before = a.accumulate ? to_float(dbias[begin + i]) : 0.0;
            dbias[begin + i] = from_float<G>(static_cast<float>(before + sums[i]));
        }
    }
}

}  // namespace

void bias_gradient(Stream stream, const BiasGradient& args) {
    check(stream, args);
    const OpRange range(
        stream, "bias_gradient",
        {.bytes = bytes_of_tensors(args.dout) + (args.accumulate ? 2 : 1) * args.dbias.size_bytes(),
         .dtype = args.dout.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::bias_gradient(stream, args);
    }
    stream.run([args] { cpu::bias_gradient(args); });
}

std::int64_t bias_gradient_scratch_bytes(Device device, std::int64_t N, std::int64_t OC) {
    return device == Device::cuda ? cuda::bias_gradient_scratch_bytes(N, OC) : 0;
}

namespace cpu {

void bias_gradient(const BiasGradient& args) {
    dispatch_float(args.dout.dtype, [&](auto activation) {
        dispatch_float(args.dbias.dtype, [&](auto gradient) {
            sum_columns<decltype(activation), decltype(gradient)>(args);
        });
    });
}

}  // namespace cpu
}  // namespace ingot
