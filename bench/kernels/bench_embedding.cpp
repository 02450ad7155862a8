#include "bench/kernels/cases.h"
#include "kernels/embedding.h"

namespace ingot::bench {

void add_embedding(std::vector<Case>& cases, const ModelSizes& m) {
    const std::int64_t N = m.rows();
    // Rows of the token table that occur; a repeated one could stay in the cache.
    const std::int64_t rows = num_distinct_ids(N, m.V);
    for (const DType dtype : {DType::f32, DType::bf16}) {
        cases.push_back({.op = "embedding_forward",
                         .shape = str(m.B, "x", m.T, "x", m.C),
                         .dtype = dtype,
                         .bytes = bytes_of(DType::i32, N) + bytes_of(dtype, (N + rows + m.T) * m.C),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const EmbeddingForward args{.out = in.space(dtype, {m.B, m.T, m.C}),
                                                         .ids = in.ids({m.B, m.T}, m.V),
                                                         .wte = in.values(dtype, {m.Vp, m.C}),
                                                         .wpe = in.values(dtype, {m.T, m.C})};
                             return [=](Stream s) { embedding_forward(s, args); };
                         }});
        // Accumulating on the tied head's gradient: the touched rows are read and written.
        cases.push_back({.op = "embedding_backward",
                         .shape = str(m.B, "x", m.T, "x", m.C),
                         .dtype = dtype,
                         .bytes = bytes_of(DType::i32, 2 * N) + bytes_of(dtype, N * m.C) +
                                  bytes_of(DType::f32, 2 * m.C * (rows + m.T)),
                         .flops = 0.0,
                         .make = [=](Inputs& in) -> Call {
                             const std::int64_t scratch =
                                 embedding_backward_scratch_bytes(in.device(), N, m.Vp, m.C);
                             const EmbeddingBackward args{.dwte = in.space(DType::f32, {m.Vp, m.C}),
                                                          .dwpe = in.space(DType::f32, {m.T, m.C}),
                                                          .scratch = in.scratch(scratch),
                                                          .dout = in.values(dtype, {m.B, m.T, m.C}),
                                                          .order = in.token_order(N, m.V),
                                                          .accumulate_dwte = true,
                                                          .accumulate_dwpe = true};
                             return [=](Stream s) { embedding_backward(s, args); };
                         }});
    }
}

}  // namespace ingot::bench
