#include "kernels/embedding.h"

#include <algorithm>
#include <string>

#include "engine/core/op_range.h"
#include "engine/core/token_order.h"
#include "kernels/contract.h"
#include "kernels/device/embedding_grid.h"

namespace ingot {
namespace {

// What forward and backward have in common: activations (B, T, C) and the tables.
struct EmbeddingTensors {
    ConstTensor activations;  // (B, T, C)
    ConstTensor tokens;       // (Vp, C)
    ConstTensor positions;    // (max T, C) or null
};

struct EmbeddingNames {
    std::string op, activations, tokens, positions;
};

void check_tables(Stream stream, const EmbeddingTensors& t, const EmbeddingNames& names) {
    const std::int64_t T = t.activations.dim(1);
    const std::int64_t C = t.activations.dim(2);
    const std::string tokens = names.op + ": " + names.tokens;
    contract::require_on_device(stream, t.tokens, tokens.c_str());
    contract::require_float("embedding.dtype", t.tokens, tokens.c_str());
    ENSURE(t.tokens.num_dims == 2 && t.tokens.dim(1) == C, "embedding.shape", tokens, " is ",
           t.tokens.shape_string(), ", must have rows of C=", C, ", the width of ",
           names.activations);
    if (!t.positions) return;
    const std::string positions = names.op + ": " + names.positions;
    contract::require_on_device(stream, t.positions, positions.c_str());
    contract::require_dtype("embedding.dtype", t.positions, t.tokens.dtype, positions.c_str());
    ENSURE(t.positions.num_dims == 2 && t.positions.dim(1) == C, "embedding.shape", positions,
           " is ", t.positions.shape_string(), ", must have rows of C=", C, ", the width of ",
           names.activations);
    ENSURE(T <= t.positions.dim(0), "embedding.shape", names.op, ": T = ", T, ", but ",
           names.positions, " has ", t.positions.dim(0),
           " rows; use a sequence that fits into the model's context");
}

void check_embedding(Stream stream, const EmbeddingTensors& t, const EmbeddingNames& names) {
    const std::string activations = names.op + ": " + names.activations;
    contract::require_on_device(stream, t.activations, activations.c_str());
    contract::require_float("embedding.dtype", t.activations, activations.c_str());
    ENSURE(t.activations.num_dims == 3, "embedding.shape", activations, " is ",
           t.activations.shape_string(), ", must be (B, T, C)");
    contract::require_row("embedding.shape", t.activations, activations.c_str());
    // The order holds positions as 32-bit numbers.
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
    const std::int64_t num_tokens = t.activations.rows();
    ENSURE(num_tokens <= kMostTokens, "embedding.shape", activations, " is ",
           t.activations.shape_string(), ", ", num_tokens, " positions, must have at most ",
           kMostTokens, "; split the batch");
    check_tables(stream, t, names);
}

void check_ids(Stream stream,
               const ConstTensor& ids,
               std::int64_t rows,
               std::int64_t columns,
               const char* what) {
    contract::require_on_device(stream, ids, what);
    contract::require_dtype("embedding.dtype", ids, DType::i32, what);
    contract::require_shape("embedding.shape", ids, {rows, columns}, what);
}

void check(Stream stream, const EmbeddingForward& a) {
    check_embedding(stream, {a.out, a.wte, a.wpe}, {"embedding_forward", "out", "wte", "wpe"});
    check_ids(stream, a.ids, a.out.dim(0), a.out.dim(1), "embedding_forward: ids");
    contract::require_dtype("embedding.dtype", a.wte, a.out.dtype, "embedding_forward: wte");
}

void check(Stream stream, const EmbeddingBackward& a) {
    check_embedding(stream, {a.dout, a.dwte, a.dwpe},
                    {"embedding_backward", "dout", "dwte", "dwpe"});
    check_ids(stream, a.order, a.dout.rows(), 2, "embedding_backward: order");
    const std::int64_t scratch_bytes =
        embedding_backward_scratch_bytes(stream.device(), a.dout.rows(), a.dwte.dim(1));
    contract::require_scratch("embedding.scratch", stream, a.scratch, scratch_bytes,
                              "embedding_backward: scratch");
}

// Adds `count` rows of dout, row(0), row(1), ..., into one row of a gradient. G is the gradient's
// type, A that of dout. Without rows the gradient is set to 0 or left alone.
template <class G, class A, class Row>
void sum_rows(G* gradient,
              const A* dout,
              std::int64_t C,
              std::int64_t count,
              const Row& row,
              bool accumulate) {
    constexpr std::int64_t kColumns = 128;  // one block's sums stay in the first-level cache
    if (count == 0) {
        if (!accumulate) std::fill_n(gradient, C, from_float<G>(0.0F));
        return;
    }
    for (std::int64_t begin = 0; begin < C; begin += kColumns) {
        const std::int64_t columns = std::min(kColumns, C - begin);
        float sums[kColumns] = {};
        for (std::int64_t r = 0; r < count; ++r) {
            const A* values = dout + row(r) * C + begin;
#pragma omp simd
            for (std::int64_t i = 0; i < columns; ++i)
                sums[i] += to_float(values[i]);
        }
        for (std::int64_t i = 0; i < columns; ++i) {
            const float old = accumulate ? to_float(gradient[begin + i]) : 0.0F;
            gradient[begin + i] = from_float<G>(old + sums[i]);
        }
    }
}

template <class A, class G>
void token_gradient(const EmbeddingBackward& a) {
    const std::int64_t C = a.dout.dim(2);
    const auto* begin = static_cast<const TokenEntry*>(a.order.data);
    const TokenEntry* end = begin + a.order.dim(0);
    G* dwte = a.dwte.ptr<G>();
#pragma omp parallel for schedule(dynamic, 64)
    for (std::int64_t v = 0; v < a.dwte.dim(0); ++v) {
        const TokenEntry* first =
            std::partition_point(begin, end, [&](auto e) { return e.id < v; });
        const TokenEntry* last =
            std::partition_point(first, end, [&](auto e) { return e.id == v; });
        const auto row = [&](std::int64_t r) { return std::int64_t{first[r].position}; };
        sum_rows(dwte + v * C, a.dout.ptr<A>(), C, last - first, row, a.accumulate_dwte);
    }
}

template <class A, class G>
void position_gradient(const EmbeddingBackward& a) {
    const std::int64_t B = a.dout.dim(0);
    const std::int64_t T = a.dout.dim(1);
    const std::int64_t C = a.dout.dim(2);
    G* dwpe = a.dwpe.ptr<G>();
#pragma omp parallel for schedule(static)
    for (std::int64_t t = 0; t < a.dwpe.dim(0); ++t) {
        const auto row = [&](std::int64_t b) { return b * T + t; };
        sum_rows(dwpe + t * C, a.dout.ptr<A>(), C, t < T ? B : 0, row, a.accumulate_dwpe);
    }
}

// Each token reads its row of wte, each position its row of wpe.
std::int64_t forward_bytes(const EmbeddingForward& a) {
    const std::int64_t row = a.out.dim(2) * size_of(a.out.dtype);
    return bytes_of_tensors(a.ids, a.out) + a.out.rows() * row + (a.wpe ? a.out.dim(1) * row : 0);
}

// A row of dwte is written once however often its token occurs; no more rows occur than tokens.
// What is overwritten is written as a whole.
std::int64_t backward_bytes(const EmbeddingBackward& a) {
    const std::int64_t row = a.dout.dim(2) * size_of(a.dwte.dtype);
    const std::int64_t wte_rows =
        a.accumulate_dwte ? 2 * std::min(a.order.dim(0), a.dwte.dim(0)) : a.dwte.dim(0);
    const std::int64_t wpe_rows =
        !a.dwpe ? 0 : (a.accumulate_dwpe ? 2 * a.dout.dim(1) : a.dwpe.dim(0));
    return bytes_of_tensors(a.order, a.dout) + (wte_rows + wpe_rows) * row;
}

}  // namespace

void embedding_forward(Stream stream, const EmbeddingForward& args) {
    check(stream, args);
    const OpRange range(stream, "embedding_forward",
                        {.bytes = forward_bytes(args), .dtype = args.out.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::embedding_forward(stream, args);
    }
    stream.run([args] { cpu::embedding_forward(args); });
}

void embedding_backward(Stream stream, const EmbeddingBackward& args) {
    check(stream, args);
    const OpRange range(stream, "embedding_backward",
                        {.bytes = backward_bytes(args), .dtype = args.dout.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::embedding_backward(stream, args);
    }
    stream.run([args] { cpu::embedding_backward(args); });
}

std::int64_t embedding_backward_scratch_bytes(Device device,
                                              std::int64_t num_tokens,
                                              std::int64_t C) {
    if (device == Device::cuda) return cuda::embedding_backward_scratch_bytes(num_tokens, C);
    return 0;
}

namespace cpu {

void embedding_forward(const EmbeddingForward& a) {
    dispatch_float(a.out.dtype, [&](auto zero) {
        using A = decltype(zero);
        const std::int64_t N = a.ids.numel();
        const std::int64_t T = a.out.dim(1);
        const std::int64_t C = a.out.dim(2);
        const std::int32_t* ids = a.ids.ptr<std::int32_t>();
#pragma omp parallel for schedule(static)
        for (std::int64_t n = 0; n < N; ++n) {
            const A* token = a.wte.ptr<A>() + ids[n] * C;
            A* out = a.out.ptr<A>() + n * C;
            if (!a.wpe) {
                std::copy_n(token, C, out);
                continue;
            }
            const A* position = a.wpe.ptr<A>() + (n % T) * C;
            for (std::int64_t i = 0; i < C; ++i)
                out[i] = from_float<A>(to_float(token[i]) + to_float(position[i]));
        }
    });
}

void embedding_backward(const EmbeddingBackward& a) {
    dispatch_float(a.dout.dtype, [&](auto activation) {
        dispatch_float(a.dwte.dtype, [&](auto gradient) {
            using A = decltype(activation);
            using G = decltype(gradient);
            token_gradient<A, G>(a);
            if (a.dwpe) position_gradient<A, G>(a);
        });
    });
}

}  // namespace cpu
}  // namespace ingot
