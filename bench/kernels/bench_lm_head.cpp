#include "bench/kernels/cases.h"
#include "kernels/lm_head.h"

namespace ingot::bench {

void add_lm_head(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.rows();
    const std::int64_t C = m.C;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool with_gradients : {true, false}) {
            const double product = 2.0 * static_cast<double>(N * C) * static_cast<double>(m.Vp);
            cases.push_back(
                {.op = with_gradients ? "lm_head_loss" : "lm_head_loss_only",
                 .shape = str(N, "x", C, "x", m.Vp, "/", m.chunk),
                 .dtype = dtype,
                 .bytes = bytes_of(dtype, (with_gradients ? 2 : 1) * (N * C + m.Vp * C)) +
                          (with_gradients ? bytes_of(DType::f32, m.Vp * C) : 0.0),
                 .flops = (with_gradients ? 3.0 : 1.0) * product,
                 .make = [=](Inputs& in) -> Call {
                     const LmHeadLoss args{
                         .losses = in.space(DType::f32, {N}),
                         .dinp = with_gradients ? in.space(dtype, {N, C}) : Tensor{},
                         .dweight = with_gradients ? in.space(DType::f32, {m.Vp, C}) : Tensor{},
                         .logits = in.space(dtype, {m.chunk, m.Vp}),
                         .inp = in.values(dtype, {N, C}),
                         .weight = in.values(dtype, {m.Vp, C}),
                         .targets = in.ids({N}, m.V),
                         .vocab_size = m.V,
                         .accumulate = false};
                     return [=](Stream s) { lm_head_loss(s, args); };
                 }});
        }
    }
}

}  // namespace ingot::bench
