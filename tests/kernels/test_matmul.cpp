// Goal: the three products of a linear layer and their epilogues agree with float64 on every device
// and dtype. Method: float64 loops from the formula, finite differences for the gradients, poisoned
// outputs, guard bytes, odd shapes and sizes beyond one tile, one case per error.
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "kernels/matmul.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/gelu_oracle.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Shape {
    std::int64_t N, C, OC;
};
// One element; primes; a vector width and one more; one beyond every tile size in each direction;
// rows of whole 16-byte units, which CUDA's libraries treat in kernels of their own.
const Shape kShapes[] = {{1, 1, 1},   {3, 5, 7},     {17, 64, 33},   {2, 129, 16},
                         {101, 7, 3}, {33, 96, 257}, {97, 300, 131}, {130, 64, 96}};

// out[n, o] = sum_c inp[n, c] weight[o, c] + bias[o]
std::vector<double> fprop_oracle(const std::vector<double>& inp,
                                 const std::vector<double>& weight,
                                 const std::vector<double>& bias,
                                 Shape s) {
    std::vector<double> out(static_cast<std::size_t>(s.N * s.OC));
    for (std::int64_t n = 0; n < s.N; ++n) {
        for (std::int64_t o = 0; o < s.OC; ++o) {
            double sum = bias.empty() ? 0.0 : bias[o];
            for (std::int64_t c = 0; c < s.C; ++c)
                sum += inp[n * s.C + c] * weight[o * s.C + c];
            out[n * s.OC + o] = sum;
        }
    }
    return out;
}

// dinp[n, c] = sum_o dout[n, o] weight[o, c]
std::vector<double> dgrad_oracle(const std::vector<double>& dout,
                                 const std::vector<double>& weight,
                                 Shape s) {
    std::vector<double> dinp(static_cast<std::size_t>(s.N * s.C));
    for (std::int64_t n = 0; n < s.N; ++n) {
        for (std::int64_t o = 0; o < s.OC; ++o) {
            for (std::int64_t c = 0; c < s.C; ++c)
                dinp[n * s.C + c] += dout[n * s.OC + o] * weight[o * s.C + c];
        }
    }
    return dinp;
}

// dweight[o, c] = before[o, c] + sum_n dout[n, o] inp[n, c]
std::vector<double> wgrad_oracle(const std::vector<double>& dout,
                                 const std::vector<double>& inp,
                                 std::vector<double> before,
                                 Shape s) {
    for (std::int64_t n = 0; n < s.N; ++n) {
        for (std::int64_t o = 0; o < s.OC; ++o) {
            for (std::int64_t c = 0; c < s.C; ++c)
                before[o * s.C + c] += dout[n * s.OC + o] * inp[n * s.C + c];
        }
    }
    return before;
}

// Everything one linear layer needs, on one device.
struct Fixture {
    Fixture(Context& context, DType dtype, Shape s, DType gradient = DType::f32)
        : shape(s),
          inp(context, dtype, {s.N, s.C}, random_values("inp", s.N * s.C)),
          weight(context, dtype, {s.OC, s.C}, random_values("weight", s.OC * s.C)),
          bias(context, dtype, {s.OC}, random_values("bias", s.OC)),
          dout(context, dtype, {s.N, s.OC}, random_values("dout", s.N * s.OC)),
          before(context, dtype, {s.N, s.C}, random_values("before", s.N * s.C, -3.0F, 3.0F)),
          out(context, dtype, {s.N, s.OC}),
          pre_gelu(context, dtype, {s.N, s.OC}),
          dinp(context, dtype, {s.N, s.C}),
          dweight(context, gradient, {s.OC, s.C}) {}

    MatmulForward forward() const {
        return {
            .out = out, .pre_gelu = Tensor{}, .inp = inp, .weight = weight, .bias = ConstTensor{}};
    }
    MatmulDgrad dgrad() const {
        return {.dinp = dinp, .dout = dout, .weight = weight, .pre_gelu = ConstTensor{}};
    }
    MatmulWgrad wgrad(bool accumulate) const {
        return {.dweight = dweight, .dout = dout, .inp = inp, .accumulate = accumulate};
    }
    std::vector<double> sums(bool with_bias) const {
        return fprop_oracle(to_double(inp.values()), to_double(weight.values()),
                            with_bias ? to_double(bias.values()) : std::vector<double>{}, shape);
    }

    Shape shape;
    TestTensor inp, weight, bias, dout, before, out, pre_gelu, dinp, dweight;
};

// Runs body(context, dtype, shape) for every device, dtype and shape.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                if (is_left_out(shape.N * shape.C * shape.OC, 1 << 20)) continue;
                CAPTURE(std::string(name_of(device)));
                CAPTURE(std::string(name_of(dtype)));
                CAPTURE(shape.N);
                CAPTURE(shape.C);
                CAPTURE(shape.OC);
                body(*context, dtype, shape);
            }
        }
    }
}

// A running fp32 sum of K products of values in [-1, 1] has partial sums of about sqrt(k) / 3, each
// rounded: in all 2^-24 K / 7 as a standard deviation. The oracle's inputs are the rounded ones, so
// a bf16 result is off by its own rounding alone.
Tolerance limit_of(DType dtype, std::int64_t sum_length) {
    const double sum_error = 0x1.0p-24 * static_cast<double>(sum_length + 8);
    return {sum_error, dtype == DType::bf16 ? 0x1.02p-8 : 0x1.0p-22};
}

constexpr double kBf16Roundoff = 0x1.0p-8;

// The epilogues of CUDA's bf16 are cuBLASLt's, with the freedoms that kernels/matmul.h grants them.
bool has_library_epilogue(const Context& context, DType dtype) {
    return context.device() == Device::cuda && dtype == DType::bf16;
}

// The limits of out = gelu(sum), element by element: the tanh's error also moves the rounding.
std::vector<double> gelu_limits(const Context& context,
                                DType dtype,
                                std::int64_t sum_length,
                                const std::vector<double>& sums) {
    const Tolerance limit = limit_of(dtype, sum_length);
    std::vector<double> limits;
    for (const double sum : sums) {
        limits.push_back(limit.abs + limit.rel * std::fabs(gelu_oracle(sum)));
        if (has_library_epilogue(context, dtype)) {
            limits.back() += (1.0 + kBf16Roundoff) * gelu_tanh_error(sum);
        }
    }
    return limits;
}

// The limits of dinp = sum * slope(x): the library may round the sum, take the hardware's tanh for
// the slope, and rounds their product.
std::vector<double> dgelu_limits(const Context& context,
                                 DType dtype,
                                 std::int64_t sum_length,
                                 const std::vector<double>& sums,
                                 const std::vector<float>& pre_gelu) {
    const Tolerance limit = limit_of(dtype, sum_length);
    std::vector<double> limits;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const double x = pre_gelu[i];
        const double exact = std::fabs(sums[i] * gelu_slope_oracle(x));
        limits.push_back(limit.abs + limit.rel * exact);
        if (has_library_epilogue(context, dtype)) {
            const double rounded_sum = (1.0 + kBf16Roundoff) * std::fabs(sums[i]);
            limits.back() += (1.0 + kBf16Roundoff) *
                             (kBf16Roundoff * exact + rounded_sum * gelu_slope_tanh_error(x));
        }
    }
    return limits;
}

}  // namespace

TEST_CASE("matmul_forward: agrees with float64, without and with bias") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        MatmulForward args = f.forward();
        matmul_forward(context.compute_stream(), args);
        CHECK(difference(f.out.values(), f.sums(false), limit_of(dtype, s.C)) == "");
        f.inp.values();  // its guards
        args.bias = f.bias;
        matmul_forward(context.compute_stream(), args);
        CHECK(difference(f.out.values(), f.sums(true), limit_of(dtype, s.C)) == "");
    });
}

TEST_CASE("matmul_forward: the GELU epilogue sees the fp32 sum and stores the rounded one") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        for (const bool with_bias : {false, true}) {
            MatmulForward args = f.forward();
            args.pre_gelu = f.pre_gelu;
            if (with_bias) args.bias = f.bias;
            matmul_forward(context.compute_stream(), args);
            const std::vector<double> sums = f.sums(with_bias);
            std::vector<double> activated;
            for (const double x : sums)
                activated.push_back(gelu_oracle(x));
            CHECK(difference(f.pre_gelu.values(), sums, limit_of(dtype, s.C)) == "");
            CHECK(difference_within(f.out.values(), activated,
                                    gelu_limits(context, dtype, s.C, sums)) == "");
        }
    });
}

TEST_CASE("matmul_dgrad: agrees with float64, without and with dGELU") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        MatmulDgrad args = f.dgrad();
        matmul_dgrad(context.compute_stream(), args);
        const std::vector<double> sums =
            dgrad_oracle(to_double(f.dout.values()), to_double(f.weight.values()), s);
        CHECK(difference(f.dinp.values(), sums, limit_of(dtype, s.OC)) == "");
        args.pre_gelu = f.before;
        matmul_dgrad(context.compute_stream(), args);
        const std::vector<float> before = f.before.values();
        std::vector<double> expected;
        for (std::size_t i = 0; i < sums.size(); ++i)
            expected.push_back(sums[i] * gelu_slope_oracle(before[i]));
        CHECK(difference_within(f.dinp.values(), expected,
                                dgelu_limits(context, dtype, s.OC, sums, before)) == "");
    });
}

TEST_CASE(
    "matmul_wgrad: agrees with float64, overwritten or accumulated, for both gradient types") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        for (const DType gradient : float_dtypes()) {
            CAPTURE(std::string(name_of(gradient)));
            const Fixture f(context, dtype, s, gradient);
            const std::vector<double> dout = to_double(f.dout.values());
            const std::vector<double> inp = to_double(f.inp.values());
            matmul_wgrad(context.compute_stream(), f.wgrad(false));  // over NaN
            const std::vector<double> zeros(static_cast<std::size_t>(s.OC * s.C));
            const Tolerance limit = limit_of(gradient, s.N);
            CHECK(difference(f.dweight.values(), wgrad_oracle(dout, inp, zeros, s), limit) == "");
            const std::vector<double> once = to_double(f.dweight.values());
            matmul_wgrad(context.compute_stream(), f.wgrad(true));
            CHECK(difference(f.dweight.values(), wgrad_oracle(dout, inp, once, s), limit) == "");
        }
    });
}

TEST_CASE("matmul: matrices larger than the scratch blocks of bf16 give the same as small ones") {
    // The CPU treats bf16 in blocks of 2^20 elements: several along OC, then several along N.
    const Shape shapes[] = {{40, 1030, 1100}, {2100, 8, 600}};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const Shape& s : shapes) {
            if (is_left_out(s.N * s.C * s.OC, 1 << 20)) continue;
            for (const DType gradient : float_dtypes()) {
                const Fixture f(*context, DType::bf16, s, gradient);
                const Stream stream = context->compute_stream();
                MatmulForward forward = f.forward();
                forward.bias = f.bias;
                forward.pre_gelu = f.pre_gelu;
                matmul_forward(stream, forward);
                matmul_dgrad(stream, f.dgrad());
                matmul_wgrad(stream, f.wgrad(false));
                const std::vector<double> inp = to_double(f.inp.values());
                const std::vector<double> dout = to_double(f.dout.values());
                const std::vector<double> weight = to_double(f.weight.values());
                const std::vector<double> zeros(static_cast<std::size_t>(s.OC * s.C));
                CHECK(difference(f.pre_gelu.values(), f.sums(true), limit_of(DType::bf16, s.C)) ==
                      "");
                CHECK(difference(f.dinp.values(), dgrad_oracle(dout, weight, s),
                                 limit_of(DType::bf16, s.OC)) == "");
                // Tensor cores cut off what does not fit their accumulator instead of rounding it.
                Tolerance limit = limit_of(gradient, s.N);
                if (device == Device::cuda) limit.abs *= 4.0;
                CHECK(difference(f.dweight.values(), wgrad_oracle(dout, inp, zeros, s), limit) ==
                      "");
            }
        }
    }
}

TEST_CASE("matmul: operands and results that start at odd places agree with float64") {
    const Shape s{33, 64, 48};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, s);
            std::vector<float> values = f.inp.values();
            values.insert(values.begin(), std::nanf(""));
            const TestTensor inp(*context, dtype, {s.N * s.C + 1}, values);
            const TestTensor out(*context, dtype, {s.N * s.OC + 1});
            const TestTensor dweight(*context, DType::f32, {s.OC * s.C + 1});
            MatmulForward forward = f.forward();
            forward.inp = inp.shifted({s.N, s.C});
            forward.out = out.shifted({s.N, s.OC});
            forward.bias = f.bias;
            MatmulWgrad wgrad = f.wgrad(false);
            wgrad.inp = forward.inp;
            wgrad.dweight = dweight.shifted({s.OC, s.C});
            matmul_forward(context->compute_stream(), forward);
            matmul_wgrad(context->compute_stream(), wgrad);
            std::vector<float> got = out.values();
            CHECK(std::isnan(got[0]));
            got.erase(got.begin());
            CHECK(difference(got, f.sums(true), limit_of(dtype, s.C)) == "");
            got = dweight.values();
            CHECK(std::isnan(got[0]));
            got.erase(got.begin());
            const std::vector<double> zeros(static_cast<std::size_t>(s.OC * s.C));
            CHECK(difference(
                      got,
                      wgrad_oracle(to_double(f.dout.values()), to_double(f.inp.values()), zeros, s),
                      limit_of(DType::f32, s.N)) == "");
        }
    }
}

TEST_CASE("matmul: leading dimensions are rows") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, {12, 8, 6});
        MatmulForward args = f.forward();
        matmul_forward(context->compute_stream(), args);
        const std::vector<float> flat = f.out.values();
        args.inp = args.inp.view({3, 4, 8});
        args.out = args.out.view({2, 6, 6});
        matmul_forward(context->compute_stream(), args);
        CHECK(f.out.values() == flat);
    }
}

TEST_CASE(
    "matmul: no rows leave an accumulated weight gradient alone and zero an overwritten one") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const TestTensor empty_out(*context, DType::f32, {0, 3});
        const TestTensor empty_inp(*context, DType::f32, {0, 2});
        const TestTensor dweight(*context, DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6});
        MatmulWgrad args{
            .dweight = dweight, .dout = empty_out, .inp = empty_inp, .accumulate = true};
        matmul_wgrad(context->compute_stream(), args);
        CHECK(dweight.values() == std::vector<float>{1, 2, 3, 4, 5, 6});
        args.accumulate = false;
        matmul_wgrad(context->compute_stream(), args);
        CHECK(dweight.values() == std::vector<float>(6, 0.0F));
    }
}

TEST_CASE("matmul: dgrad and wgrad agree with finite differences of the forward pass") {
    const auto context = Context::make_cpu();
    const Shape s{3, 4, 5};
    const Fixture f(*context, DType::f32, s);
    matmul_dgrad(context->compute_stream(), f.dgrad());
    matmul_wgrad(context->compute_stream(), f.wgrad(false));
    const std::vector<double> dout = to_double(f.dout.values());
    const auto loss = [&](const std::vector<double>& inp, const std::vector<double>& weight) {
        const std::vector<double> out = fprop_oracle(inp, weight, {}, s);
        double sum = 0.0;
        for (std::size_t i = 0; i < out.size(); ++i)
            sum += out[i] * dout[i];
        return sum;
    };
    const std::vector<double> inp = to_double(f.inp.values());
    const std::vector<double> weight = to_double(f.weight.values());
    const std::vector<float> dinp = f.dinp.values();
    const std::vector<float> dweight = f.dweight.values();
    constexpr double kStep = 1e-3;
    for (std::size_t i = 0; i < inp.size(); ++i) {
        std::vector<double> up = inp;
        std::vector<double> down = inp;
        up[i] += kStep;
        down[i] -= kStep;
        const double slope = (loss(up, weight) - loss(down, weight)) / (2.0 * kStep);
        CHECK(std::fabs(dinp[i] - slope) < 1e-5);
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
        std::vector<double> up = weight;
        std::vector<double> down = weight;
        up[i] += kStep;
        down[i] -= kStep;
        const double slope = (loss(inp, up) - loss(inp, down)) / (2.0 * kStep);
        CHECK(std::fabs(dweight[i] - slope) < 1e-5);
    }
}

TEST_CASE("matmul: repeated calls give the same bits") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const Stream stream = context.compute_stream();
        const auto run = [&] {
            matmul_forward(stream, f.forward());
            matmul_dgrad(stream, f.dgrad());
            matmul_wgrad(stream, f.wgrad(false));
        };
        run();
        const auto out = f.out.bytes();
        const auto dinp = f.dinp.bytes();
        const auto dweight = f.dweight.bytes();
        run();
        CHECK(f.out.bytes() == out);
        CHECK(f.dinp.bytes() == dinp);
        CHECK(f.dweight.bytes() == dweight);
    });
}

TEST_CASE("matmul: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {3, 4, 5});
    const TestTensor half(*context, DType::bf16, {3, 5});
    MatmulForward forward = f.forward();
    forward.inp = f.dout;
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward),
                         "matmul_forward: inp is (3, 5) f32, must be 3 rows of 4", Error);
    forward = f.forward();
    forward.weight = f.bias;
    CHECK_THROWS_WITH_AS(
        matmul_forward(stream, forward),
        "matmul_forward: weight is (5) f32, must be (OC, C) with OC >= 1 and C >= 1", Error);
    forward = f.forward();
    forward.bias = f.out;
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward),
                         "matmul_forward: bias is (3, 5) f32, must be 1 rows of 5", Error);
    forward = f.forward();
    forward.pre_gelu = half;
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward),
                         "matmul_forward: pre_gelu is bf16, must be f32", Error);
    forward = f.forward();
    forward.out = Tensor{};
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward), doctest::Contains("out"), Error);
    forward = f.forward();
    forward.weight.device = Device::cuda;
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward),
                         doctest::Contains("lies on cuda, the stream on cpu"), Error);
    forward = f.forward();
    forward.inp.dtype = DType::i32;
    CHECK_THROWS_WITH_AS(matmul_forward(stream, forward),
                         "matmul_forward: inp is i32, must be f32 or bf16", Error);

    MatmulDgrad dgrad = f.dgrad();
    dgrad.dinp = f.out;
    CHECK_THROWS_WITH_AS(matmul_dgrad(stream, dgrad),
                         "matmul_dgrad: dinp is (3, 5) f32, must be 3 rows of 4", Error);
    dgrad = f.dgrad();
    dgrad.pre_gelu = f.dout;
    CHECK_THROWS_WITH_AS(matmul_dgrad(stream, dgrad),
                         "matmul_dgrad: pre_gelu is (3, 5) f32, must be 3 rows of 4", Error);
    dgrad = f.dgrad();
    dgrad.dout = half;
    CHECK_THROWS_WITH_AS(matmul_dgrad(stream, dgrad), "matmul_dgrad: weight is f32, must be bf16",
                         Error);

    MatmulWgrad wgrad = f.wgrad(false);
    wgrad.inp = f.dout;
    CHECK_THROWS_WITH_AS(matmul_wgrad(stream, wgrad),
                         "matmul_wgrad: inp is (3, 5) f32, must be 3 rows of 4", Error);
    wgrad = f.wgrad(false);
    wgrad.dweight.dtype = DType::u8;
    CHECK_THROWS_WITH_AS(matmul_wgrad(stream, wgrad),
                         "matmul_wgrad: dweight is u8, must be f32 or bf16", Error);
    try {
        wgrad.dweight.dtype = DType::f32;
        wgrad.inp = half;
        matmul_wgrad(stream, wgrad);
        FAIL("a bf16 inp was accepted");
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == "matmul.dtype");
    }
}
