#include "bench/kernels/cases.h"
#include "kernels/sum.h"

namespace ingot::bench {

void add_sum(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t n = m.rows();
    cases.push_back({.op = "sum",
                     .shape = str(n),
                     .dtype = DType::f32,
                     .bytes = bytes_of(DType::f32, n),
                     .flops = 0.0,
                     .make = [=](Inputs& in) -> Call {
                         const Sum args{.out = in.space(DType::f32, {1}),
                                        .inp = in.values(DType::f32, {n}),
                                        .accumulate = false};
                         return [=](Stream s) { sum(s, args); };
                     }});
}

}  // namespace ingot::bench
