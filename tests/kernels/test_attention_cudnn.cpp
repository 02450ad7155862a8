// Goal: cuDNN's attention, where it is asked for, is the attention of kernels/attention.h in the
// engine's layouts, deterministic where that is asked for, and refuses what it was not prepared
// for. Method: float64 loops, poisoned outputs, guard bytes, odd shapes, repeated calls, one case
// per error. Only machines with a GPU and cuDNN run it.
#include <doctest/doctest.h>

#include "kernels/attention_cudnn.h"
#include "kernels/attention_method.h"
#include "tests/support/attention_oracle.h"
#include "tests/support/attention_tensors.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Shape = AttentionSize;

const Shape kShapes[] = {{2, 5, 3, 3, 16},   {1, 37, 4, 2, 24},   {2, 64, 2, 1, 64},
                         {1, 65, 6, 2, 40},  {1, 131, 2, 2, 128}, {3, 32, 4, 4, 32},
                         {2, 128, 4, 2, 64}, {1, 300, 2, 1, 64}};

struct Fixture : AttentionTensors {
    Fixture(Context& context, const Shape& s, DType dtype = DType::bf16)
        : AttentionTensors(context, dtype, s, attention_inputs(s, 2.0F), 0) {}

    AttentionPreparation preparation(bool deterministic) const {
        return {.method = AttentionMethod::cudnn,
                .shape = shape.attention(DType::bf16),
                .scale = shape.scale(),
                .with_backward = true,
                .deterministic = deterministic};
    }
    AttentionForward forward() const { return AttentionTensors::forward(AttentionMethod::cudnn); }
    AttentionBackward backward(bool deterministic) const {
        AttentionBackward args = AttentionTensors::backward(AttentionMethod::cudnn);
        args.scratch = Tensor{};
        args.deterministic = deterministic;
        return args;
    }
    void run(Stream stream, bool deterministic) {
        for (TestTensor* tensor : {&out, &lse, &dqkv})
            tensor->poison();
        attention_forward(stream, forward());
        attention_backward(stream, backward(deterministic));
    }
};

void check_against_float64(const Fixture& f) {
    const Shape s = f.shape;
    const AttentionOracle expected =
        attention_oracle(to_double(f.qkv.values()), to_double(f.dout.values()), s, s.scale());
    // As for the engine's own paths (test_attention.cpp); P and dS are rounded to bf16 as well.
    CHECK(difference(f.out.values(), expected.out,
                     tolerance(DType::bf16, static_cast<double>(s.HS), 4.0)) == "");
    CHECK(difference(f.lse.values(), expected.lse, {1e-4, 1e-5}) == "");
    CHECK(relative_error(f.out.values(), expected.out) < 6e-3);
    CHECK(relative_error(f.dqkv.values(), expected.dqkv) < 1e-2);
}

}  // namespace

TEST_CASE("attention_cudnn: agrees with float64, in the deterministic form and the other") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    for (const Shape& shape : kShapes) {
        for (const bool deterministic : {true, false}) {
            CAPTURE(shape.T);
            CAPTURE(shape.NH);
            CAPTURE(shape.NKV);
            CAPTURE(shape.HS);
            CAPTURE(deterministic);
            Fixture f(*context, shape);
            prepare_attention(*context, f.preparation(deterministic));
            f.run(context->compute_stream(), deterministic);
            check_against_float64(f);
        }
    }
}

TEST_CASE("attention_cudnn: repeated deterministic calls give the same bits") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    for (const Shape& shape : {Shape{4, 1024, 12, 12, 64}, Shape{2, 515, 14, 2, 64}}) {
        Fixture f(*context, shape);
        prepare_attention(*context, f.preparation(true));
        f.run(context->compute_stream(), true);
        const std::vector<std::vector<std::uint8_t>> first = {f.out.bytes(), f.lse.bytes(),
                                                              f.dqkv.bytes()};
        for (int repetition = 0; repetition < 5; ++repetition) {
            f.run(context->compute_stream(), true);
            CHECK(f.out.bytes() == first[0]);
            CHECK(f.lse.bytes() == first[1]);
            CHECK(f.dqkv.bytes() == first[2]);
        }
    }
}

TEST_CASE("attention_cudnn: a preparation allocates once, a call never, as foreseen") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    Fixture f(*context, {4, 256, 4, 2, 64});
    CHECK(attention_workspace_bytes(*context) == 0);
    prepare_attention(*context, f.preparation(true));
    const std::int64_t bytes = attention_workspace_bytes(*context);
    CHECK(bytes > 0);
    CHECK(bytes <= 2 * estimate_attention_workspace_bytes(f.preparation(true)));
    const std::int64_t allocated = context->allocated_bytes();
    prepare_attention(*context, f.preparation(true));
    f.run(context->compute_stream(), true);
    CHECK(attention_workspace_bytes(*context) == bytes);
    CHECK(context->allocated_bytes() == allocated);
}

TEST_CASE("attention_cudnn: what it was not prepared for is refused with the shape") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    const Stream stream = context->compute_stream();
    const Fixture f(*context, {2, 64, 4, 2, 64});
    CHECK_THROWS_WITH_AS(
        attention_forward(stream, f.forward()),
        doctest::Contains("cuDNN has no plan for B = 2, T = 64, 4 query and 2 key/value heads of "
                          "64, bf16; call prepare_attention()"),
        Error);
    prepare_attention(*context, f.preparation(true));
    CHECK_NOTHROW(attention_forward(stream, f.forward()));
    CHECK_THROWS_WITH_AS(attention_backward(stream, f.backward(false)),
                         doctest::Contains("bf16, any order; call prepare_attention()"), Error);
    const Fixture in_f32(*context, {2, 64, 4, 2, 64}, DType::f32);
    CHECK_THROWS_WITH_AS(attention_forward(stream, in_f32.forward()),
                         doctest::Contains("cuDNN's attention takes bf16, not f32"), Error);
}

TEST_CASE("attention_cudnn: a shape without a plan names version, call, shape and fix") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    const Fixture f(*context, {1, 1, 1, 1, 64});  // cuDNN has no backward pass of one position
    try {
        prepare_attention(*context, f.preparation(true));
        FAIL("was not refused");
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == "attention.cudnn");
        const doctest::String text = error.what();
        for (const char* part : {"attention_backward: cuDNN 9.", "validate for B = 1, T = 1",
                                 "deterministic", "set train.deterministic=false"}) {
            CHECK(text == doctest::Contains(part));
        }
    }
}
