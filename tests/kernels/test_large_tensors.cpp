// Goal: no op keeps an index in 32 bits: elements past the 2^31st are treated like those before.
// Method: tensors of more than 2^31 elements that are zero but for a few rows at their end
// (tests/support/large_tensor.h); what an op makes of these rows must have the bits of the same op
// on a small tensor that holds them alone. Where an op adds rows up, the values are small integers,
// so that no order of the sum rounds. Embedding, attention and matmul are in
// test_large_batches.cpp.
#include <algorithm>

#include <doctest/doctest.h>

#include "kernels/adamw.h"
#include "kernels/bias_gradient.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/gelu.h"
#include "kernels/global_norm.h"
#include "kernels/layernorm.h"
#include "tests/support/compare.h"
#include "tests/support/large_tensor.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("large tensors: fill and cast") {
    for_each_large_case(6, [](Context& context, std::int64_t elements, bool) {
        const Stream stream = context.compute_stream();
        const std::int64_t n = elements + 3;  // not a whole number of packs
        const Large inp(context, DType::bf16, {n});
        const Large out(context, DType::f32, {n});
        const std::int64_t end = std::min(n - 1, kBeyond + 1000);
        fill(stream, {.out = inp, .value = -1.5F});
        cast(stream, {.out = out, .inp = inp});
        const TestTensor expected(context, DType::f32, {end},
                                  std::vector<float>(static_cast<std::size_t>(end), -1.5F));
        CHECK(out.last_bytes(end) == expected.bytes());
        const TestTensor tail = random_tensor(context, DType::bf16, {1003}, "tail");
        const TestTensor wide(context, DType::f32, {1003});
        inp.set_last(tail);
        cast(stream, {.out = out, .inp = inp});
        cast(stream, {.out = wide, .inp = tail});
        CHECK(out.last_bytes(1003) == wide.bytes());
    });
}

TEST_CASE("large tensors: gelu and its gradient") {
    for_each_large_case(6, [](Context& context, std::int64_t n, bool) {
        const Stream stream = context.compute_stream();
        const TestTensor inp = random_tensor(context, DType::bf16, {1000}, "inp");
        const TestTensor dout = random_tensor(context, DType::bf16, {1000}, "dout");
        const TestTensor out(context, DType::bf16, {1000});
        const Large all_inp(context, DType::bf16, {n});
        const Large all_dout(context, DType::bf16, {n});
        const Large all_out(context, DType::bf16, {n});
        all_inp.set_last(inp);
        all_dout.set_last(dout);
        gelu_forward(stream, {.out = out, .inp = inp});
        gelu_forward(stream, {.out = all_out, .inp = all_inp});
        CHECK(all_out.last_bytes(1000) == out.bytes());
        gelu_backward(stream, {.dinp = out, .dout = dout, .inp = inp});
        gelu_backward(stream, {.dinp = all_out, .dout = all_dout, .inp = all_inp});
        CHECK(all_out.last_bytes(1000) == out.bytes());
    });
}

TEST_CASE("large tensors: squared norm") {
    for_each_large_case(2, [](Context& context, std::int64_t n, bool) {
        const Stream stream = context.compute_stream();
        const Large inp(context, DType::bf16, {n});
        const TestTensor scratch(context, DType::u8,
                                 {squared_norm_scratch_bytes(context.device(), n)});
        const TestTensor out(context, DType::f32, {1});
        // In the first pack, among the elements just past the 2^31st, and the last one.
        const std::int64_t places[] = {3, std::max<std::int64_t>(n - kBeyond + 5, 9), n - 1};
        float value = 2.0F;
        for (const std::int64_t place : places) {
            const TestTensor one(context, DType::bf16, {1}, {value});
            copy(stream, Tensor(inp).slice(place, place + 1), one);
            stream.synchronize();
            value += 1.0F;
        }
        squared_norm(stream, {.out = out, .scratch = scratch, .inp = inp, .accumulate = false});
        CHECK(out.values()[0] == 4.0F + 9.0F + 16.0F);
    });
}

TEST_CASE("large tensors: adamw") {
    for_each_large_case(16, [](Context& context, std::int64_t n, bool) {
        const Stream stream = context.compute_stream();
        const TestTensor master = random_tensor(context, DType::f32, {1000}, "master");
        const TestTensor m = random_tensor(context, DType::f32, {1000}, "m");
        const TestTensor v(context, DType::f32, {1000}, random_values("v", 1000, 0.1F, 1.0F));
        const TestTensor param(context, DType::bf16, {1000});
        const TestTensor grad = random_tensor(context, DType::bf16, {1000}, "grad");
        const Large all_master(context, DType::f32, {n}), all_m(context, DType::f32, {n}),
            all_v(context, DType::f32, {n}), all_param(context, DType::bf16, {n}),
            all_grad(context, DType::bf16, {n});
        all_master.set_last(master);
        all_m.set_last(m);
        all_v.set_last(v);
        all_grad.set_last(grad);
        std::vector<float> values(kNumStepScalars, 0.0F);
        values[kLearningRate] = 1e-2F;
        values[kBiasCorrection1] = values[kBiasCorrection2] = 0.5F;
        values[kGradFactor] = values[kIsFinite] = 1.0F;
        const TestTensor scalars(context, DType::f32, {kNumStepScalars}, values);
        AdamW args{.master = master,
                   .m = m,
                   .v = v,
                   .param = param,
                   .grad = grad,
                   .scalars = scalars,
                   .beta1 = 0.9F,
                   .beta2 = 0.95F,
                   .eps = 1e-8F,
                   .weight_decay = 0.1F};
        adamw(stream, args);
        args.master = all_master;
        args.m = all_m;
        args.v = all_v;
        args.param = all_param;
        args.grad = all_grad;
        adamw(stream, args);
        CHECK(all_master.last_bytes(1000) == master.bytes());
        CHECK(all_m.last_bytes(1000) == m.bytes());
        CHECK(all_v.last_bytes(1000) == v.bytes());
        CHECK(all_param.last_bytes(1000) == param.bytes());
    });
}

namespace {

// Tensors of one LayerNorm.
struct Norm {
    Norm(Context& context, Tensor x, Tensor sum, Tensor y)
        : inp(x),
          residual(sum),
          out(y),
          mean(context, DType::f32, {x.dim(0)}),
          rstd(context, DType::f32, {x.dim(0)}),
          dweight(context, DType::f32, {x.dim(1)}),
          dbias(context, DType::f32, {x.dim(1)}),
          scratch(context,
                  DType::u8,
                  {layernorm_backward_scratch_bytes(context.device(), x.dim(0), x.dim(1))}) {}

    Tensor inp, residual, out;
    TestTensor mean, rstd, dweight, dbias, scratch;
};

}  // namespace

TEST_CASE("large tensors: layernorm") {
    for_each_large_case(6, [](Context& context, std::int64_t elements, bool) {
        const Stream stream = context.compute_stream();
        for (const std::int64_t C : {768, 769}) {  // rows of whole packs, and others
            CAPTURE(C);
            const std::int64_t N = elements / C + kRows;
            const TestTensor weight = random_tensor(context, DType::bf16, {C}, "weight");
            const TestTensor inp = random_tensor(context, DType::bf16, {kRows, C}, "inp");
            const TestTensor dout = random_tensor(context, DType::bf16, {kRows, C}, "dout");
            const TestTensor residual(context, DType::bf16, {kRows, C});
            const TestTensor out(context, DType::bf16, {kRows, C});
            const Large all_inp(context, DType::bf16, {N, C});
            const Large all_residual(context, DType::bf16, {N, C});
            const Large all_out(context, DType::bf16, {N, C});
            all_inp.set_last(inp);
            const Norm small(context, inp, residual, out);
            const Norm large(context, all_inp, all_residual, all_out);
            for (const Norm* norm : {&small, &large}) {
                residual_layernorm_forward(stream, {.residual = norm->residual,
                                                    .out = norm->out,
                                                    .mean = norm->mean,
                                                    .rstd = norm->rstd,
                                                    .inp1 = norm->inp,
                                                    .inp2 = norm->inp,
                                                    .weight = weight,
                                                    .bias = weight,
                                                    .eps = 1e-5F});
            }
            CHECK(all_residual.last_bytes(kRows) == residual.bytes());
            CHECK(all_out.last_bytes(kRows) == out.bytes());
            // The output becomes dout, and the gradient overwrites it.
            fill_zero(stream, all_out);
            all_out.set_last(dout);
            copy(stream, out, dout);
            for (const Norm* norm : {&small, &large}) {
                layernorm_backward(stream, {.dinp = norm->out,
                                            .dweight = norm->dweight,
                                            .dbias = norm->dbias,
                                            .scratch = norm->scratch,
                                            .dout = norm->out,
                                            .dresidual = ConstTensor{},
                                            .inp = norm->residual,
                                            .weight = weight,
                                            .mean = norm->mean,
                                            .rstd = norm->rstd,
                                            .accumulate = false});
            }
            CHECK(all_out.last_bytes(kRows) == out.bytes());
            CHECK(relative_error(large.dweight.values(), to_double(small.dweight.values())) < 1e-6);
            CHECK(relative_error(large.dbias.values(), to_double(small.dbias.values())) < 1e-6);
        }
    });
}

TEST_CASE("large tensors: bias gradient") {
    for_each_large_case(2, [](Context& context, std::int64_t elements, bool) {
        for (const std::int64_t OC : {768, 769}) {
            CAPTURE(OC);
            const std::int64_t N = elements / OC + kRows;
            const TestTensor dout = integer_tensor(context, DType::bf16, {kRows, OC}, "dout");
            const TestTensor dbias(context, DType::f32, {OC});
            const TestTensor all_dbias(context, DType::f32, {OC});
            const TestTensor scratch(
                context, DType::u8,
                {std::max(bias_gradient_scratch_bytes(context.device(), N, OC),
                          bias_gradient_scratch_bytes(context.device(), kRows, OC))});
            const Large all(context, DType::bf16, {N, OC});
            all.set_last(dout);
            const Stream stream = context.compute_stream();
            bias_gradient(stream,
                          {.dbias = dbias, .scratch = scratch, .dout = dout, .accumulate = false});
            bias_gradient(
                stream, {.dbias = all_dbias, .scratch = scratch, .dout = all, .accumulate = false});
            CHECK(all_dbias.bytes() == dbias.bytes());
        }
    });
}

TEST_CASE("large tensors: cross entropy") {
    for_each_large_case(2, [](Context& context, std::int64_t elements, bool is_large) {
        for (const std::int64_t odd : {0, 1}) {  // rows of whole packs, and others
            const std::int64_t Vp = (is_large ? 50304 : 504) + odd;
            CAPTURE(Vp);
            const std::int64_t V = Vp - 3;
            const std::int64_t N = elements / Vp + kRows;
            const TestTensor logits = random_tensor(context, DType::bf16, {kRows, Vp}, "logits");
            const TestTensor losses(context, DType::f32, {kRows});
            const TestTensor all_losses(context, DType::f32, {N});
            std::vector<std::int32_t> ids = random_ids("targets", N, static_cast<int>(V));
            const TestTensor all_targets(context, {N}, ids);
            ids.erase(ids.begin(), ids.end() - kRows);
            const TestTensor targets(context, {kRows}, ids);
            const Large all(context, DType::bf16, {N, Vp});
            all.set_last(logits);
            const Stream stream = context.compute_stream();
            cross_entropy(stream, {.losses = losses,
                                   .logits = logits,
                                   .targets = targets,
                                   .vocab_size = V,
                                   .write_dlogits = true});
            cross_entropy(stream, {.losses = all_losses,
                                   .logits = all,
                                   .targets = all_targets,
                                   .vocab_size = V,
                                   .write_dlogits = true});
            CHECK(all.last_bytes(kRows) == logits.bytes());
            std::vector<float> last = all_losses.values();
            last.erase(last.begin(), last.end() - kRows);
            CHECK(last == losses.values());
        }
    });
}
