#include "bench/kernels/cases.h"
#include "kernels/gelu.h"

namespace ingot::bench {

void add_gelu(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.rows();
    const std::int64_t C = 4 * m.C;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        cases.push_back({.op = "gelu_forward",
                         .shape = str(N, "x", C),
                         .dtype = dtype,
                         .bytes = bytes_of(dtype, 2 * N * C),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const GeluForward args{.out = in.space(dtype, {N, C}),
                                                    .inp = in.values(dtype, {N, C}, -3.0F, 3.0F)};
                             return [=](Stream s) { gelu_forward(s, args); };
                         }});
        cases.push_back({.op = "gelu_backward",
                         .shape = str(N, "x", C),
                         .dtype = dtype,
                         .bytes = bytes_of(dtype, 3 * N * C),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const GeluBackward args{.dinp = in.space(dtype, {N, C}),
                                                     .dout = in.values(dtype, {N, C}),
                                                     .inp = in.values(dtype, {N, C}, -3.0F, 3.0F)};
                             return [=](Stream s) { gelu_backward(s, args); };
                         }});
    }
}

}  // namespace ingot::bench
