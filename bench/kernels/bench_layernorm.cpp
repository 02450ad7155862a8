#include "bench/kernels/cases.h"
#include "kernels/layernorm.h"

namespace ingot::bench {

namespace {

// Parameter gradients accumulate in fp32.
void add_backward(
    std::vector<Case>& cases, std::int64_t N, std::int64_t C, DType dtype, bool has_residual) {
    const double statistics = bytes_of(DType::f32, 2 * N);
    cases.push_back(
        {.op = "layernorm_backward",
         .shape = str(N, "x", C, has_residual ? " residual" : ""),
         .dtype = dtype,
         .bytes = bytes_of(dtype, (has_residual ? 4 : 3) * N * C + C) + statistics +
                  bytes_of(DType::f32, 4 * C),
         .flops = 0.0,
         .make = [=](Inputs& in) -> Call {
             const std::int64_t scratch = layernorm_backward_scratch_bytes(in.device(), N, C);
             const LayerNormBackward args{
                 .dinp = in.space(dtype, {N, C}),
                 .dweight = in.space(DType::f32, {C}),
                 .dbias = in.space(DType::f32, {C}),
                 .scratch = in.scratch(scratch),
                 .dout = in.values(dtype, {N, C}),
                 .dresidual = has_residual ? ConstTensor(in.values(dtype, {N, C})) : ConstTensor{},
                 .inp = in.values(dtype, {N, C}),
                 .weight = in.values(dtype, {C}),
                 .mean = in.values(DType::f32, {N}),
                 .rstd = in.values(DType::f32, {N}, 0.5F, 1.5F),
                 .accumulate = true};
             return [=](Stream s) { layernorm_backward(s, args); };
         }});
}

}  // namespace

void add_layernorm(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.rows();
    const std::int64_t C = m.C;
    const std::string shape = str(N, "x", C);
    const double statistics = bytes_of(DType::f32, 2 * N);
    for (const DType dtype : {DType::f32, DType::bf16}) {
        cases.push_back({.op = "layernorm_forward",
                         .shape = shape,
                         .dtype = dtype,
                         .bytes = bytes_of(dtype, 2 * N * C + 2 * C) + statistics,
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const LayerNormForward args{.out = in.space(dtype, {N, C}),
                                                         .mean = in.space(DType::f32, {N}),
                                                         .rstd = in.space(DType::f32, {N}),
                                                         .inp = in.values(dtype, {N, C}),
                                                         .weight = in.values(dtype, {C}),
                                                         .bias = in.values(dtype, {C}),
                                                         .eps = 1e-5F};
                             return [=](Stream s) { layernorm_forward(s, args); };
                         }});
        cases.push_back({.op = "residual_layernorm_forward",
                         .shape = shape,
                         .dtype = dtype,
                         .bytes = bytes_of(dtype, 4 * N * C + 2 * C) + statistics,
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const ResidualLayerNormForward args{
                                 .residual = in.space(dtype, {N, C}),
                                 .out = in.space(dtype, {N, C}),
                                 .mean = in.space(DType::f32, {N}),
                                 .rstd = in.space(DType::f32, {N}),
                                 .inp1 = in.values(dtype, {N, C}),
                                 .inp2 = in.values(dtype, {N, C}),
                                 .weight = in.values(dtype, {C}),
                                 .bias = in.values(dtype, {C}),
                                 .eps = 1e-5F};
                             return [=](Stream s) { residual_layernorm_forward(s, args); };
                         }});
        // As in a block, with the residual's gradient; and as after the final norm, without.
        add_backward(cases, N, C, dtype, true);
        add_backward(cases, N, C, dtype, false);
    }
}

}  // namespace ingot::bench
