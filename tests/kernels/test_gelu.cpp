// Goal: GELU and its gradient agree with float64 on every device and dtype, in place too, and at
// the ends of the number range. Method: the formula in float64, finite differences, poisoned
// outputs, one case per error.
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "kernels/gelu.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/gelu_oracle.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

Tolerance limit_of(DType dtype) {
    return {1e-6, dtype == DType::bf16 ? 0x1.02p-8 : 2e-6};
}

// Runs body(context, dtype, count) for every device, dtype and a few sizes: one element, a prime,
// one vector and one more, and several blocks with a rest.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const std::int64_t count : {1, 7, 64, 65, 5003}) {
                CAPTURE(std::string(name_of(device)));
                CAPTURE(std::string(name_of(dtype)));
                CAPTURE(count);
                body(*context, dtype, count);
            }
        }
    }
}

}  // namespace

TEST_CASE("gelu_forward: agrees with float64") {
    for_each_case([](Context& context, DType dtype, std::int64_t count) {
        const TestTensor inp(context, dtype, {count}, random_values("x", count, -6.0F, 6.0F));
        const TestTensor out(context, dtype, {count});
        gelu_forward(context.compute_stream(), {.out = out, .inp = inp});
        std::vector<double> expected;
        for (const float x : inp.values())
            expected.push_back(gelu_oracle(x));
        CHECK(difference(out.values(), expected, limit_of(dtype)) == "");
    });
}

TEST_CASE("gelu_backward: agrees with float64") {
    for_each_case([](Context& context, DType dtype, std::int64_t count) {
        const TestTensor inp(context, dtype, {count}, random_values("x", count, -6.0F, 6.0F));
        const TestTensor dout(context, dtype, {count}, random_values("dout", count));
        const TestTensor dinp(context, dtype, {count});
        gelu_backward(context.compute_stream(), {.dinp = dinp, .dout = dout, .inp = inp});
        const std::vector<float> x = inp.values();
        std::vector<double> expected = to_double(dout.values());
        for (std::size_t i = 0; i < x.size(); ++i)
            expected[i] *= gelu_slope_oracle(x[i]);
        CHECK(difference(dinp.values(), expected, limit_of(dtype)) == "");
    });
}

TEST_CASE("gelu: in place gives the same bits") {
    for_each_case([](Context& context, DType dtype, std::int64_t count) {
        const Stream stream = context.compute_stream();
        const TestTensor inp(context, dtype, {count}, random_values("x", count, -6.0F, 6.0F));
        const TestTensor dout(context, dtype, {count}, random_values("dout", count));
        const TestTensor result(context, dtype, {count});
        gelu_backward(stream, {.dinp = result, .dout = dout, .inp = inp});
        const auto dinp = result.bytes();
        gelu_backward(stream, {.dinp = dout, .dout = dout, .inp = inp});
        CHECK(dout.bytes() == dinp);
        gelu_forward(stream, {.out = result, .inp = inp});
        gelu_forward(stream, {.out = inp, .inp = inp});
        CHECK(inp.bytes() == result.bytes());
    });
}

TEST_CASE("gelu: views that start at odd places give the same bits") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        for (const DType dtype : float_dtypes()) {
            constexpr std::int64_t kCount = 640;
            const std::vector<float> values = random_values("x", kCount + 1, -6.0F, 6.0F);
            const TestTensor inp(*context, dtype, {kCount + 1}, values);
            const TestTensor same(*context, dtype, {kCount}, {values.begin() + 1, values.end()});
            const TestTensor out(*context, dtype, {kCount + 1}),
                dinp(*context, dtype, {kCount + 1});
            const TestTensor aligned_out(*context, dtype, {kCount});
            const TestTensor aligned_dinp(*context, dtype, {kCount});
            const Tensor x = inp.shifted({kCount});
            gelu_forward(stream, {.out = out.shifted({kCount}), .inp = x});
            gelu_forward(stream, {.out = aligned_out, .inp = same});
            gelu_backward(stream, {.dinp = dinp.shifted({kCount}), .dout = x, .inp = x});
            gelu_backward(stream, {.dinp = aligned_dinp, .dout = same, .inp = same});
            const std::vector<float> y = out.values(), dx = dinp.values();
            CHECK(std::isnan(y[0]));
            CHECK(std::vector<float>(y.begin() + 1, y.end()) == aligned_out.values());
            CHECK(std::vector<float>(dx.begin() + 1, dx.end()) == aligned_dinp.values());
        }
    }
}

TEST_CASE("gelu: large inputs give 0 or the input, gradients 0 or dout; NaN stays NaN") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        const TestTensor inp(
            *context, DType::f32, {5},
            {1e30F, -1e30F, 40.0F, -40.0F, std::numeric_limits<float>::quiet_NaN()});
        const TestTensor ones(*context, DType::f32, {5}, std::vector<float>(5, 3.0F));
        const TestTensor result(*context, DType::f32, {5});
        gelu_forward(stream, {.out = result, .inp = inp});
        std::vector<float> values = result.values();
        CHECK(values[0] == 1e30F);
        CHECK(values[1] == 0.0F);
        CHECK(values[2] == 40.0F);
        CHECK(values[3] == 0.0F);
        CHECK(std::isnan(values[4]));
        gelu_backward(stream, {.dinp = result, .dout = ones, .inp = inp});
        values = result.values();
        CHECK(values[0] == 3.0F);
        CHECK(std::fabs(values[1]) < 1e-30F);
        CHECK(values[2] == 3.0F);
        CHECK(std::fabs(values[3]) < 1e-30F);
        CHECK(std::isnan(values[4]));
    }
}

TEST_CASE("gelu_backward: agrees with finite differences of the forward pass") {
    const auto context = Context::make_cpu();
    const TestTensor inp(*context, DType::f32, {50}, random_values("x", 50, -4.0F, 4.0F));
    const TestTensor ones(*context, DType::f32, {50}, std::vector<float>(50, 1.0F));
    const TestTensor dinp(*context, DType::f32, {50});
    gelu_backward(context->compute_stream(), {.dinp = dinp, .dout = ones, .inp = inp});
    const std::vector<float> x = inp.values();
    const std::vector<float> slopes = dinp.values();
    for (std::size_t i = 0; i < x.size(); ++i) {
        constexpr double kStep = 1e-4;
        const double slope = (gelu_oracle(x[i] + kStep) - gelu_oracle(x[i] - kStep)) / (2 * kStep);
        CHECK(std::fabs(slopes[i] - slope) < 1e-6);
    }
}

TEST_CASE("gelu: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const TestTensor three(*context, DType::f32, {3}, std::vector<float>(3, 0.0F));
    const TestTensor four(*context, DType::f32, {2, 2});
    const TestTensor half(*context, DType::bf16, {3});
    const TestTensor ids(*context, {3}, {1, 2, 3});
    CHECK_THROWS_WITH_AS(gelu_forward(stream, {.out = four, .inp = three}),
                         "gelu_forward: out is (2, 2) f32, must be (3) f32", Error);
    CHECK_THROWS_WITH_AS(gelu_forward(stream, {.out = half, .inp = three}),
                         "gelu_forward: out is bf16, must be f32", Error);
    CHECK_THROWS_WITH_AS(gelu_forward(stream, {.out = ids, .inp = ids}),
                         "gelu_forward: inp is i32, must be f32 or bf16", Error);
    CHECK_THROWS_WITH_AS(gelu_backward(stream, {.dinp = three, .dout = half, .inp = three}),
                         "gelu_backward: dout is bf16, must be f32", Error);
    CHECK_THROWS_WITH_AS(gelu_backward(stream, {.dinp = four, .dout = three, .inp = three}),
                         "gelu_backward: dinp is (2, 2) f32, must be (3) f32", Error);
    Tensor missing = three;
    missing.data = nullptr;
    CHECK_THROWS_WITH_AS(gelu_forward(stream, {.out = missing, .inp = three}),
                         doctest::Contains("out is a null view"), Error);
    ConstTensor elsewhere = three;
    elsewhere.device = Device::cuda;
    CHECK_THROWS_WITH_AS(gelu_forward(stream, {.out = three, .inp = elsewhere}),
                         doctest::Contains("lies on cuda, the stream on cpu"), Error);
}
