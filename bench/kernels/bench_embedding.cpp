#include "bench/kernels/cases.h"
#include "kernels/embedding.h"

namespace ingot::bench {
namespace {

// Bytes: a row of the token table once however often its id occurs; another time it could come from
// the cache.

Case forward_case(const ModelSizes& m, DType dtype) {
    const std::int64_t N = m.rows();
    const std::int64_t rows = num_distinct(random_ids(N, m.V));
    return {.op = "embedding_forward",
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
            }};
}

// Accumulating on the tied head's gradient: the touched rows are read and written.
Case backward_case(const ModelSizes& m,
                   DType dtype,
                   const char* op,
                   const std::vector<std::int32_t>& ids) {
    const std::int64_t N = m.rows();
    return {.op = op,
            .shape = str(m.B, "x", m.T, "x", m.C),
            .dtype = dtype,
            .bytes = bytes_of(DType::i32, 2 * N) + bytes_of(dtype, N * m.C) +
                     bytes_of(DType::f32, 2 * m.C * (num_distinct(ids) + m.T)),
            .flops = 0.0,
            .make = [=](Inputs& in) -> Call {
                const std::int64_t scratch = embedding_backward_scratch_bytes(in.device(), N, m.C);
                const EmbeddingBackward args{.dwte = in.space(DType::f32, {m.Vp, m.C}),
                                             .dwpe = in.space(DType::f32, {m.T, m.C}),
                                             .scratch = in.scratch(scratch),
                                             .dout = in.values(dtype, {m.B, m.T, m.C}),
                                             .order = in.token_order(ids),
                                             .accumulate_dwte = true,
                                             .accumulate_dwpe = true};
                return [=](Stream s) { embedding_backward(s, args); };
            }};
}

}  // namespace

void add_embedding(std::vector<Case>& cases, const ModelSizes& m) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        cases.push_back(forward_case(m, dtype));
        cases.push_back(backward_case(m, dtype, "embedding_backward", random_ids(m.rows(), m.V)));
    }
    cases.push_back(
        backward_case(m, DType::bf16, "embedding_backward_zipf", zipf_ids(m.rows(), m.V)));
}

}  // namespace ingot::bench
