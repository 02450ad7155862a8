#include "bench/kernels/cases.h"
#include "kernels/adamw.h"

namespace ingot::bench {

void add_adamw(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t n = m.num_parameters;
    // fp32: read and write master, m and v, read the gradient. bf16: write the parameter as well.
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const bool has_param = dtype == DType::bf16;
        cases.push_back(
            {.op = "adamw",
             .shape = str(n),
             .dtype = dtype,
             .bytes = bytes_of(DType::f32, 7 * n) + (has_param ? bytes_of(dtype, n) : 0.0),
             .flops = 0.0,
             .make = [=](Inputs& in) -> Call {
                 const AdamW args{
                     .master = in.values(DType::f32, {n}),
                     .m = in.space(DType::f32, {n}),
                     .v = in.space(DType::f32, {n}),
                     .param = has_param ? in.space(dtype, {n}) : Tensor{},
                     .grad = in.values(DType::f32, {n}),
                     .scalars = in.exactly({1e-4F, 0.1F, 0.05F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F}),
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .eps = 1e-8F,
                     .weight_decay = 0.1F};
                 return [=](Stream s) { adamw(s, args); };
             }});
    }
}

}  // namespace ingot::bench
