// Goal: no op keeps an index in 32 bits, for the ops of whole batches: embedding, attention,
// matmul. Method: that of test_large_tensors.cpp.
#include <cmath>

#include <doctest/doctest.h>

#include "engine/core/token_order.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "tests/support/large_tensor.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("large tensors: matmuls of the head") {
    for_each_large_case(3, [](Context& context, std::int64_t elements, bool is_large) {
        const Stream stream = context.compute_stream();
        const std::int64_t OC = is_large ? 50304 : 96;
        const std::int64_t C = 64;
        const std::int64_t N = elements / OC + kRows;
        const TestTensor weight = integer_tensor(context, DType::bf16, {OC, C}, "weight");
        const TestTensor inp = integer_tensor(context, DType::bf16, {kRows, C}, "inp");
        const TestTensor out(context, DType::bf16, {kRows, OC});
        const TestTensor dinp(context, DType::bf16, {kRows, C});
        const TestTensor dweight(context, DType::f32, {OC, C});
        const TestTensor all_dweight(context, DType::f32, {OC, C});
        const Large all_inp(context, DType::bf16, {N, C});
        const Large all_out(context, DType::bf16, {N, OC});
        const Large all_dinp(context, DType::bf16, {N, C});
        all_inp.set_last(inp);
        const Tensor none;
        const ConstTensor no_bias;
        matmul_forward(
            stream, {.out = out, .pre_gelu = none, .inp = inp, .weight = weight, .bias = no_bias});
        matmul_forward(
            stream,
            {.out = all_out, .pre_gelu = none, .inp = all_inp, .weight = weight, .bias = no_bias});
        CHECK(all_out.last_bytes(kRows) == out.bytes());
        // The logits are whole numbers of at most 64: they serve as their own gradient.
        matmul_dgrad(stream, {.dinp = dinp, .dout = out, .weight = weight, .pre_gelu = no_bias});
        matmul_dgrad(stream,
                     {.dinp = all_dinp, .dout = all_out, .weight = weight, .pre_gelu = no_bias});
        CHECK(all_dinp.last_bytes(kRows) == dinp.bytes());
        matmul_wgrad(stream, {.dweight = dweight, .dout = out, .inp = inp, .accumulate = false});
        matmul_wgrad(
            stream, {.dweight = all_dweight, .dout = all_out, .inp = all_inp, .accumulate = false});
        CHECK(all_dweight.bytes() == dweight.bytes());
    });
}

TEST_CASE("large tensors: a matmul whose rows are not whole packs") {
    for_each_large_case(5, [](Context& context, std::int64_t elements, bool) {
        const Stream stream = context.compute_stream();
        const std::int64_t OC = 33;
        const std::int64_t C = 8;
        const std::int64_t N = elements / OC + kRows;
        const TestTensor weight = integer_tensor(context, DType::bf16, {OC, C}, "weight");
        const TestTensor inp = integer_tensor(context, DType::bf16, {kRows, C}, "inp");
        const TestTensor out(context, DType::bf16, {kRows, OC});
        const TestTensor pre_gelu(context, DType::bf16, {kRows, OC});
        const Large all_inp(context, DType::bf16, {N, C});
        const Large all_out(context, DType::bf16, {N, OC});
        const Large all_pre_gelu(context, DType::bf16, {N, OC});
        all_inp.set_last(inp);
        const ConstTensor no_bias;
        matmul_forward(
            stream,
            {.out = out, .pre_gelu = pre_gelu, .inp = inp, .weight = weight, .bias = no_bias});
        matmul_forward(stream, {.out = all_out,
                                .pre_gelu = all_pre_gelu,
                                .inp = all_inp,
                                .weight = weight,
                                .bias = no_bias});
        CHECK(all_pre_gelu.last_bytes(kRows) == pre_gelu.bytes());
        CHECK(all_out.last_bytes(kRows) == out.bytes());
    });
}

namespace {

std::vector<std::int32_t> last_ids(const std::vector<std::int32_t>& ids, std::int64_t count) {
    return {ids.end() - count, ids.end()};
}

}  // namespace

TEST_CASE("large tensors: embedding of a large batch") {
    for_each_large_case(4, [](Context& context, std::int64_t elements, bool is_large) {
        const Stream stream = context.compute_stream();
        const std::int64_t C = is_large ? 768 : 12;
        const std::int64_t Vp = is_large ? 20000 : 50;
        const std::int64_t T = 1024 / (is_large ? 1 : 32);
        const std::int64_t B = elements / (T * C) + 1;
        const std::vector<std::int32_t> ids = random_ids("ids", B * T, static_cast<int>(Vp));
        const TestTensor all_ids(context, {B, T}, ids);
        const TestTensor some_ids(context, {1, kRows}, last_ids(ids, kRows));
        const TestTensor all_order(context, {B * T, 2}, token_order(ids));
        const TestTensor some_order(context, {kRows, 2}, token_order(last_ids(ids, kRows)));
        const TestTensor wte = random_tensor(context, DType::bf16, {Vp, C}, "wte");
        const TestTensor wpe = random_tensor(context, DType::bf16, {T, C}, "wpe");
        const TestTensor out(context, DType::bf16, {1, kRows, C});
        const Large all(context, DType::bf16, {B * T, C});
        embedding_forward(
            stream,
            {.out = out, .ids = some_ids, .wte = wte, .wpe = wpe.tensor().slice(T - kRows, T)});
        embedding_forward(
            stream, {.out = Tensor(all).view({B, T, C}), .ids = all_ids, .wte = wte, .wpe = wpe});
        CHECK(all.last_bytes(kRows) == out.bytes());

        const TestTensor dout = integer_tensor(context, DType::bf16, {kRows, C}, "dout");
        fill_zero(stream, all);
        all.set_last(dout);
        const TestTensor dwte(context, DType::f32, {Vp, C}), all_dwte(context, DType::f32, {Vp, C});
        const TestTensor dwpe(context, DType::f32, {kRows, C});
        const TestTensor all_dwpe(context, DType::f32, {T, C});
        const TestTensor scratch(context, DType::u8,
                                 {embedding_backward_scratch_bytes(context.device(), B * T, C)});
        embedding_backward(stream, {.dwte = dwte,
                                    .dwpe = dwpe,
                                    .scratch = scratch,
                                    .dout = dout.tensor().view({1, kRows, C}),
                                    .order = some_order,
                                    .accumulate_dwte = false,
                                    .accumulate_dwpe = false});
        embedding_backward(stream, {.dwte = all_dwte,
                                    .dwpe = all_dwpe,
                                    .scratch = scratch,
                                    .dout = Tensor(all).view({B, T, C}),
                                    .order = all_order,
                                    .accumulate_dwte = false,
                                    .accumulate_dwpe = false});
        CHECK(all_dwte.values() == dwte.values());  // -0 and 0 are equal
        const std::vector<float> positions = all_dwpe.values();
        CHECK(std::vector<float>(positions.end() - kRows * C, positions.end()) == dwpe.values());
    });
}

TEST_CASE("large tensors: a large embedding table") {
    for_each_large_case(6, [](Context& context, std::int64_t elements, bool is_large) {
        const Stream stream = context.compute_stream();
        const std::int64_t C = is_large ? 768 : 12;
        const std::int64_t Vp = elements / C + kRows;
        const int last = static_cast<int>(Vp - 1);
        const TestTensor rows = random_tensor(context, DType::bf16, {kRows, C}, "rows");
        const Large wte(context, DType::bf16, {Vp, C});
        wte.set_last(rows);
        const TestTensor ids(context, {1, 4}, {last, 0, last - 2, last});
        const TestTensor few_ids(context, {1, 4}, {4, 0, 2, 4});
        const TestTensor order(context, {4, 2}, token_order({last, 0, last - 2, last}));
        const TestTensor out(context, DType::bf16, {1, 4, C}), few(context, DType::bf16, {1, 4, C});
        const ConstTensor no_positions;
        embedding_forward(stream, {.out = out, .ids = ids, .wte = wte, .wpe = no_positions});
        embedding_forward(stream, {.out = few, .ids = few_ids, .wte = rows, .wpe = no_positions});
        const auto bytes = out.bytes(), expected = few.bytes();
        const auto row_bytes = static_cast<std::ptrdiff_t>(2 * C);
        CHECK(std::equal(bytes.begin(), bytes.begin() + row_bytes, expected.begin()));
        CHECK(std::equal(bytes.begin() + 2 * row_bytes, bytes.end(),
                         expected.begin() + 2 * row_bytes));

        const TestTensor dout = integer_tensor(context, DType::bf16, {1, 4, C}, "dout");
        const Large dwte(context, DType::f32, {Vp, C});
        const TestTensor stale(context, DType::f32, {kRows, C},
                               std::vector<float>(static_cast<std::size_t>(kRows * C), 7.0F));
        dwte.set_last(stale);
        const TestTensor scratch(context, DType::u8,
                                 {embedding_backward_scratch_bytes(context.device(), 4, C)});
        embedding_backward(stream, {.dwte = dwte,
                                    .dwpe = Tensor{},
                                    .scratch = scratch,
                                    .dout = dout,
                                    .order = order,
                                    .accumulate_dwte = false,
                                    .accumulate_dwpe = false});
        const std::vector<float> d = dout.values();
        std::vector<float> sums(static_cast<std::size_t>(kRows * C), 0.0F);
        for (std::int64_t i = 0; i < C; ++i) {
            sums[static_cast<std::size_t>(2 * C + i)] = d[static_cast<std::size_t>(2 * C + i)];
            sums[static_cast<std::size_t>(4 * C + i)] =
                d[static_cast<std::size_t>(i)] + d[static_cast<std::size_t>(3 * C + i)];
        }
        CHECK(dwte.last_floats(kRows) == sums);
    });
}

TEST_CASE("large tensors: attention, on tensor cores and in its general form") {
    for (const int HS : {64, 56}) {
        CAPTURE(HS);
        for_each_large_case(6, [HS](Context& context, std::int64_t elements, bool is_large) {
            const Stream stream = context.compute_stream();
            const int NH = is_large ? 12 : 2;
            const std::int64_t T = is_large ? 128 : 16;
            const std::int64_t C = std::int64_t{NH} * HS;
            const std::int64_t B = elements / (T * 3 * C) + 1;
            const TestTensor qkv = random_tensor(context, DType::bf16, {1, T, 3 * C}, "qkv");
            const TestTensor dout = random_tensor(context, DType::bf16, {1, T, C}, "dout");
            const TestTensor out(context, DType::bf16, {1, T, C});
            const TestTensor lse(context, DType::f32, {1, NH, T});
            const TestTensor dqkv(context, DType::bf16, {1, T, 3 * C});
            const Large all_qkv(context, DType::bf16, {B, T, 3 * C});
            const Large all_dout(context, DType::bf16, {B, T, C});
            const Large all_out(context, DType::bf16, {B, T, C});
            const Large all_lse(context, DType::f32, {B, NH, T});
            const Large all_dqkv(context, DType::bf16, {B, T, 3 * C});
            all_qkv.set_last(qkv);
            all_dout.set_last(dout);
            const TestTensor scratch(context, DType::u8,
                                     {attention_backward_scratch_bytes(
                                         context.device(), {B, T, NH, NH, HS, DType::bf16})});
            const float scale = 1.0F / std::sqrt(static_cast<float>(HS));
            const auto run = [&](Tensor o, Tensor l, Tensor dx, ConstTensor x, ConstTensor dy) {
                attention_forward(stream, {.out = o,
                                           .lse = l,
                                           .qkv = x,
                                           .num_heads = NH,
                                           .num_kv_heads = NH,
                                           .scale = scale});
                attention_backward(stream, {.dqkv = dx,
                                            .scratch = scratch,
                                            .dout = dy,
                                            .out = o,
                                            .lse = l,
                                            .qkv = x,
                                            .num_heads = NH,
                                            .num_kv_heads = NH,
                                            .scale = scale});
            };
            run(out, lse, dqkv, qkv, dout);
            run(all_out, all_lse, all_dqkv, all_qkv, all_dout);
            CHECK(all_out.last_bytes(1) == out.bytes());
            CHECK(all_lse.last_bytes(1) == lse.bytes());
            CHECK(all_dqkv.last_bytes(1) == dqkv.bytes());
        });
    }
}
