#include "bench/kernels/cases.h"
#include "kernels/global_norm.h"

namespace ingot::bench {

void add_global_norm(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t n = m.num_parameters;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        cases.push_back({.op = "squared_norm",
                         .shape = str(n),
                         .dtype = dtype,
                         .bytes = bytes_of(dtype, n),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const std::int64_t scratch =
                                 squared_norm_scratch_bytes(in.device(), n);
                             const SquaredNorm args{.out = in.space(DType::f32, {1}),
                                                    .scratch = in.scratch(scratch),
                                                    .inp = in.values(dtype, {n}),
                                                    .accumulate = false};
                             return [=](Stream s) { squared_norm(s, args); };
                         }});
    }
    constexpr std::int64_t kGroups = 14;
    cases.push_back({.op = "clip_by_global_norm",
                     .shape = str(kGroups),
                     .dtype = DType::f32,
                     .bytes = bytes_of(DType::f32, kGroups + 2 * kNumStepScalars + 1),
                     .flops = 0.0,
                     .make = [=](Inputs& in) -> Call {
                         const ClipByGlobalNorm args{
                             .scalars = in.exactly(std::vector<float>(kNumStepScalars, 1.0F)),
                             .squares = in.values(DType::f32, {kGroups}, 0.0F, 1.0F),
                             .loss = in.values(DType::f32, {1})};
                         return [=](Stream s) { clip_by_global_norm(s, args); };
                     }});
}

}  // namespace ingot::bench
