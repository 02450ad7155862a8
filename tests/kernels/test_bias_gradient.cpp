// Goal: the bias gradient agrees with float64 on every device and dtype, and accumulates or
// overwrites as asked. Method: float64 loops, poisoned outputs, odd shapes, a sum that fp32 alone
// would get wrong, one case per error.
#include <omp.h>
#include <string>

#include <doctest/doctest.h>

#include "kernels/bias_gradient.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Shape {
    std::int64_t N, OC;
};
const Shape kShapes[] = {{1, 1},   {3, 5},     {64, 64}, {7, 127},
                         {2, 129}, {1031, 33}, {5, 768}, {517, 264}};

struct Fixture {
    Fixture(Context& context, DType dtype, DType gradient, Shape s)
        : dout(context, dtype, {s.N, s.OC}, random_values("dout", s.N * s.OC)),
          dbias(context, gradient, {s.OC}),
          scratch(context, DType::u8, {bias_gradient_scratch_bytes(context.device(), s.N, s.OC)}),
          expected(static_cast<std::size_t>(s.OC)) {
        const std::vector<float> values = dout.values();
        for (std::size_t i = 0; i < values.size(); ++i)
            expected[i % expected.size()] += values[i];
    }
    BiasGradient args(bool accumulate) const {
        return {.dbias = dbias, .scratch = scratch, .dout = dout, .accumulate = accumulate};
    }

    TestTensor dout, dbias, scratch;
    std::vector<double> expected;
};

// Runs body(fixture, stream, gradient) for every device, dtype pair and shape.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const DType gradient : float_dtypes()) {
                for (const Shape& s : kShapes) {
                    CAPTURE(std::string(name_of(device)));
                    CAPTURE(std::string(name_of(dtype)));
                    CAPTURE(std::string(name_of(gradient)));
                    CAPTURE(s.N);
                    CAPTURE(s.OC);
                    body(Fixture(*context, dtype, gradient, s), context->compute_stream(),
                         gradient);
                }
            }
        }
    }
}

Tolerance limit_of(DType gradient) {
    return {2e-5, gradient == DType::bf16 ? 0x1.02p-8 : 1e-6};
}

}  // namespace

TEST_CASE("bias_gradient: overwrites, and agrees with float64") {
    for_each_case([](const Fixture& f, Stream stream, DType gradient) {
        bias_gradient(stream, f.args(false));  // over NaN
        CHECK(difference(f.dbias.values(), f.expected, limit_of(gradient)) == "");
    });
}

TEST_CASE("bias_gradient: accumulates on what is there") {
    for_each_case([](const Fixture& f, Stream stream, DType gradient) {
        bias_gradient(stream, f.args(false));
        const std::vector<float> once = f.dbias.values();
        bias_gradient(stream, f.args(true));
        std::vector<double> twice = f.expected;
        for (std::size_t i = 0; i < twice.size(); ++i)
            twice[i] += once[i];
        CHECK(difference(f.dbias.values(), twice, limit_of(gradient)) == "");
        bias_gradient(stream, f.args(false));
        CHECK(f.dbias.values() == once);
    });
}

TEST_CASE("bias_gradient: dout may start at an odd place") {
    const Shape s{70, 64};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, DType::f32, s);
            std::vector<float> values = f.dout.values();
            values.insert(values.begin(), 1e30F);
            const TestTensor dout(*context, dtype, {s.N * s.OC + 1}, values);
            BiasGradient args = f.args(false);
            args.dout = dout.shifted({s.N, s.OC});
            bias_gradient(context->compute_stream(), args);
            CHECK(difference(f.dbias.values(), f.expected, limit_of(DType::f32)) == "");
        }
    }
}

TEST_CASE("bias_gradient: a row of large values does not swallow many small ones") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const std::int64_t N = 4097;
        std::vector<float> values(static_cast<std::size_t>(2 * N), 0x1.0p-12F);
        values[0] = 4096.0F;  // 2^24 times the others: one by one they would vanish in fp32
        values[1] = 0x1.0p-12F;
        const TestTensor dout(*context, DType::f32, {N, 2}, values);
        const TestTensor dbias(*context, DType::f32, {2});
        const TestTensor scratch(*context, DType::u8, {bias_gradient_scratch_bytes(device, N, 2)});
        bias_gradient(context->compute_stream(),
                      {.dbias = dbias, .scratch = scratch, .dout = dout, .accumulate = false});
        CHECK(dbias.values()[0] == doctest::Approx(4097.0).epsilon(1e-4));
        CHECK(dbias.values()[1] == doctest::Approx(4097.0 / 4096.0).epsilon(1e-6));
    }
}

TEST_CASE(
    "bias_gradient: no rows leave an accumulated gradient alone and zero an overwritten one") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const TestTensor dout(*context, DType::f32, {0, 3});
        const TestTensor dbias(*context, DType::f32, {3}, {1.0F, 2.0F, 3.0F});
        const TestTensor scratch(*context, DType::u8, {bias_gradient_scratch_bytes(device, 0, 3)});
        BiasGradient args{.dbias = dbias, .scratch = scratch, .dout = dout, .accumulate = true};
        args.dout = args.dout.view({0, 3});
        bias_gradient(context->compute_stream(), args);
        CHECK(dbias.values() == std::vector<float>{1.0F, 2.0F, 3.0F});
        args.accumulate = false;
        bias_gradient(context->compute_stream(), args);
        CHECK(dbias.values() == std::vector<float>(3, 0.0F));
    }
}

TEST_CASE("bias_gradient: the CPU gives the same bits with 1 and with 3 threads") {
    const auto context = Context::make_cpu();
    const Fixture f(*context, DType::f32, DType::f32, {211, 500});
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    bias_gradient(context->compute_stream(), f.args(false));
    const auto one = f.dbias.bytes();
    omp_set_num_threads(3);
    bias_gradient(context->compute_stream(), f.args(false));
    omp_set_num_threads(before);
    CHECK(f.dbias.bytes() == one);
}

TEST_CASE("bias_gradient: leading dimensions are rows, and repeated calls give the same bits") {
    for_each_case([](const Fixture& f, Stream stream, DType) {
        bias_gradient(stream, f.args(false));
        const auto bytes = f.dbias.bytes();
        BiasGradient args = f.args(false);
        args.dout = args.dout.view({1, args.dout.dim(0), args.dout.dim(1)});
        bias_gradient(stream, args);
        CHECK(f.dbias.bytes() == bytes);
    });
}

TEST_CASE("bias_gradient: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, DType::f32, {3, 5});
    const auto message = [&](auto&& change) {
        BiasGradient args = f.args(false);
        change(args);
        try {
            bias_gradient(stream, args);
        } catch (const Error& error) {
            return std::string(error.code()) + " " + error.what();
        }
        return std::string("accepted");
    };
    CHECK(message([](BiasGradient& a) { a.dbias = a.dbias.slice(0, 4); }) ==
          "bias_gradient.shape bias_gradient: dbias is (4) f32, must be (5) f32");
    CHECK(message([](BiasGradient& a) { a.dout.dims[1] = 0; }) ==
          "bias_gradient.shape bias_gradient: dout is (3, 0) f32, must be (..., OC) with OC >= 1");
    CHECK(message([](BiasGradient& a) { a.dout.dtype = DType::i32; }) ==
          "bias_gradient.dtype bias_gradient: dout is i32, must be f32 or bf16");
    CHECK(message([](BiasGradient& a) { a.dbias.dtype = DType::u8; }) ==
          "bias_gradient.dtype bias_gradient: dbias is u8, must be f32 or bf16");
    CHECK(message([](BiasGradient& a) { a.dbias.data = nullptr; }) ==
          "op.missing bias_gradient: dbias is a null view; pass memory of shape (5) f32");
    CHECK(message([](BiasGradient& a) { a.dout.device = Device::cuda; }) ==
          "op.device bias_gradient: dout (3, 5) f32 lies on cuda, the stream on cpu");
    for (const Device device : test_devices()) {
        const std::int64_t needed = bias_gradient_scratch_bytes(device, 3, 5);
        if (needed == 0) continue;
        const auto other = make_context(device);
        const Fixture g(*other, DType::f32, DType::f32, {3, 5});
        BiasGradient args = g.args(false);
        args.scratch = args.scratch.slice(0, needed - 1);
        CHECK_THROWS_WITH_AS(bias_gradient(other->compute_stream(), args),
                             doctest::Contains("are needed"), Error);
    }
}
