#include "bench/kernels/cases.h"
#include "kernels/bias_gradient.h"

namespace ingot::bench {

void add_bias_gradient(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.rows();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t OC : {m.C, 3 * m.C, 4 * m.C}) {
            cases.push_back({.op = "bias_gradient",
                             .shape = str(N, "x", OC),
                             .dtype = dtype,
                             .bytes = bytes_of(dtype, N * OC) + bytes_of(DType::f32, 2 * OC),
                             .flops = 0.0,
                             .make = [=](Inputs& in) -> Call {
                                 const std::int64_t scratch =
                                     bias_gradient_scratch_bytes(in.device(), N, OC);
                                 const BiasGradient args{.dbias = in.space(DType::f32, {OC}),
                                                         .scratch = in.scratch(scratch),
                                                         .dout = in.values(dtype, {N, OC}),
                                                         .accumulate = true};
                                 return [=](Stream s) { bias_gradient(s, args); };
                             }});
        }
    }
}

}  // namespace ingot::bench
