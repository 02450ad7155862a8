#include "bench/kernels/cases.h"
#include "kernels/cross_entropy.h"

namespace ingot::bench {

void add_cross_entropy(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.chunk;
    const std::int64_t V = m.V;
    const std::int64_t Vp = m.Vp;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool write_dlogits : {true, false}) {
            cases.push_back({.op = write_dlogits ? "cross_entropy" : "cross_entropy_loss_only",
                             .shape = str(N, "x", Vp),
                             .dtype = dtype,
                             .bytes = bytes_of(dtype, N * V) +
                                      (write_dlogits ? bytes_of(dtype, N * Vp) : 0.0) +
                                      bytes_of(DType::f32, 2 * N),
                             .flops = 0.0,
                             .make = [=](Inputs& in) -> Call {
                                 const CrossEntropy args{.losses = in.space(DType::f32, {N}),
                                                         .logits = in.values(dtype, {N, Vp}),
                                                         .targets = in.ids({N}, V),
                                                         .vocab_size = V,
                                                         .write_dlogits = write_dlogits};
                                 return [=](Stream s) { cross_entropy(s, args); };
                             }});
        }
    }
}

}  // namespace ingot::bench
