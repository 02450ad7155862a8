#include "bench/kernels/cases.h"
#include "kernels/cast.h"

namespace ingot::bench {

void add_cast(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t n = m.rows() * 4 * m.C;
    // The dtype of a case is the one written.
    for (const DType from : {DType::f32, DType::bf16}) {
        const DType to = from == DType::f32 ? DType::bf16 : DType::f32;
        cases.push_back({.op = "cast",
                         .shape = str(n, " from ", name_of(from)),
                         .dtype = to,
                         .bytes = bytes_of(from, n) + bytes_of(to, n),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const Cast args{.out = in.space(to, {n}), .inp = in.values(from, {n})};
                             return [=](Stream s) { cast(s, args); };
                         }});
        cases.push_back({.op = "fill",
                         .shape = str(n),
                         .dtype = to,
                         .bytes = bytes_of(to, n),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const Fill args{.out = in.space(to, {n}), .value = 1.0F};
                             return [=](Stream s) { fill(s, args); };
                         }});
    }
}

}  // namespace ingot::bench
