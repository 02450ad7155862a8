#include "bench/kernels/cases.h"
#include "kernels/matmul.h"

namespace ingot::bench {

namespace {

// A linear layer of one block: N rows, C -> OC.
struct Layer {
    const char* name;
    std::int64_t C, OC;
    bool has_gelu;
};

void add_layer(std::vector<Case>& cases, const Layer& layer, std::int64_t N, DType dtype) {
    const std::int64_t C = layer.C;
    const std::int64_t OC = layer.OC;
    const bool has_gelu = layer.has_gelu;
    const std::string shape = str(layer.name, " ", N, "x", C, "x", OC);
    const double flops = 2.0 * static_cast<double>(N * C) * static_cast<double>(OC);
    const double matrices = bytes_of(dtype, N * C + OC * C + N * OC);
    cases.push_back({.op = has_gelu ? "matmul_forward_gelu" : "matmul_forward",
                     .shape = shape,
                     .dtype = dtype,
                     .bytes = matrices + (has_gelu ? bytes_of(dtype, N * OC) : 0.0),
                     .flops = flops,
                     .make = [=](Inputs& in) -> Call {
                         const MatmulForward args{
                             .out = in.space(dtype, {N, OC}),
                             .pre_gelu = has_gelu ? in.space(dtype, {N, OC}) : Tensor{},
                             .inp = in.values(dtype, {N, C}),
                             .weight = in.values(dtype, {OC, C}),
                             .bias = in.values(dtype, {OC})};
                         return [=](Stream s) { matmul_forward(s, args); };
                     }});
    // The layer after a GELU is narrower than its input: its input gradient passes the dGELU.
    const bool has_dgelu = C > OC;
    cases.push_back({.op = has_dgelu ? "matmul_dgrad_dgelu" : "matmul_dgrad",
                     .shape = shape,
                     .dtype = dtype,
                     .bytes = matrices + (has_dgelu ? bytes_of(dtype, N * C) : 0.0),
                     .flops = flops,
                     .make = [=](Inputs& in) -> Call {
                         const MatmulDgrad args{
                             .dinp = in.space(dtype, {N, C}),
                             .dout = in.values(dtype, {N, OC}),
                             .weight = in.values(dtype, {OC, C}),
                             .pre_gelu =
                                 has_dgelu ? ConstTensor(in.values(dtype, {N, C})) : ConstTensor{}};
                         return [=](Stream s) { matmul_dgrad(s, args); };
                     }});
    cases.push_back({.op = "matmul_wgrad",
                     .shape = shape,
                     .dtype = dtype,
                     .bytes = bytes_of(dtype, N * (C + OC)) + bytes_of(DType::f32, 2 * OC * C),
                     .flops = flops,
                     .make = [=](Inputs& in) -> Call {
                         const MatmulWgrad args{.dweight = in.space(DType::f32, {OC, C}),
                                                .dout = in.values(dtype, {N, OC}),
                                                .inp = in.values(dtype, {N, C}),
                                                .accumulate = true};
                         return [=](Stream s) { matmul_wgrad(s, args); };
                     }});
}

}  // namespace

void add_matmul(std::vector<Case>& cases, const ModelSizes& m) {
    const std::size_t first = cases.size();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Layer& layer :
             {Layer{"qkv", m.C, 3 * m.C, false}, Layer{"proj", m.C, m.C, false},
              Layer{"fc", m.C, 4 * m.C, true}, Layer{"fcproj", 4 * m.C, m.C, false}}) {
            add_layer(cases, layer, m.rows(), dtype);
        }
    }
    if (m.device != Device::cuda) return;
    for (std::size_t i = first; i < cases.size(); ++i) {
        const bool has_gelu = cases[i].op.find("gelu") != std::string::npos;
        if (has_gelu && cases[i].dtype == DType::f32) continue;  // kernels of our own take part
        cases[i].library = {.name = "cuBLASLt heuristic", .make = cases[i].make};
    }
}

}  // namespace ingot::bench
