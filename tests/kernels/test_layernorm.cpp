// Goal: LayerNorm forward, fused residual and backward agree with float64 on every device and
// dtype. Method: float64 loops from the formula, finite differences for the gradients, poisoned
// outputs, guard bytes, odd shapes, one case per error.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/layernorm.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr float kEps = 1e-5F;

struct Oracle {
    std::vector<double> out, mean, rstd;
};

Oracle forward_oracle(const std::vector<double>& x,
                      const std::vector<double>& weight,
                      const std::vector<double>& bias,
                      double eps = kEps) {
    const std::size_t C = weight.size();
    const std::size_t N = x.size() / C;
    Oracle result{std::vector<double>(x.size()), std::vector<double>(N), std::vector<double>(N)};
    for (std::size_t n = 0; n < N; ++n) {
        double mean = 0.0;
        for (std::size_t i = 0; i < C; ++i)
            mean += x[n * C + i] / static_cast<double>(C);
        double variance = 0.0;
        for (std::size_t i = 0; i < C; ++i) {
            variance += std::pow(x[n * C + i] - mean, 2) / static_cast<double>(C);
        }
        result.mean[n] = mean;
        result.rstd[n] = 1.0 / std::sqrt(variance + eps);
        for (std::size_t i = 0; i < C; ++i) {
            const double xhat = (x[n * C + i] - mean) * result.rstd[n];
            result.out[n * C + i] = xhat * weight[i] + bias[i];
        }
    }
    return result;
}

struct BackwardOracle {
    std::vector<double> dinp, dweight, dbias;
};

BackwardOracle backward_oracle(const std::vector<double>& x,
                               const std::vector<double>& weight,
                               const std::vector<double>& dout) {
    const std::size_t C = weight.size();
    const std::size_t N = x.size() / C;
    const Oracle forward = forward_oracle(x, weight, std::vector<double>(C, 0.0));
    BackwardOracle result{std::vector<double>(x.size()), std::vector<double>(C),
                          std::vector<double>(C)};
    for (std::size_t n = 0; n < N; ++n) {
        double mean_g = 0.0;
        double mean_g_xhat = 0.0;
        const auto xhat = [&](std::size_t i) {
            return (x[n * C + i] - forward.mean[n]) * forward.rstd[n];
        };
        for (std::size_t i = 0; i < C; ++i) {
            const double g = dout[n * C + i] * weight[i];
            mean_g += g / static_cast<double>(C);
            mean_g_xhat += g * xhat(i) / static_cast<double>(C);
            result.dweight[i] += dout[n * C + i] * xhat(i);
            result.dbias[i] += dout[n * C + i];
        }
        for (std::size_t i = 0; i < C; ++i) {
            const double g = dout[n * C + i] * weight[i];
            result.dinp[n * C + i] = forward.rstd[n] * (g - mean_g - xhat(i) * mean_g_xhat);
        }
    }
    return result;
}

struct Shape {
    std::int64_t N, C;
};
// The last two: more rows than the CUDA backward has blocks, and a row too wide for its registers.
const Shape kShapes[] = {{1, 1},    {3, 5},    {7, 64},     {2, 127}, {5, 768},
                         {33, 257}, {4, 1600}, {900, 1600}, {3, 4104}};

// Everything one LayerNorm needs, on one device.
struct Fixture {
    Fixture(Context& context, DType dtype, Shape s, DType gradient = DType::f32)
        : inp(context, dtype, {s.N, s.C}, random_values("x", s.N * s.C, -2.0F, 3.0F)),
          weight(context, dtype, {s.C}, random_values("w", s.C, 0.5F, 1.5F)),
          bias(context, dtype, {s.C}, random_values("b", s.C)),
          out(context, dtype, {s.N, s.C}),
          mean(context, DType::f32, {s.N}),
          rstd(context, DType::f32, {s.N}),
          dout(context, dtype, {s.N, s.C}, random_values("dout", s.N * s.C)),
          dresidual(context, dtype, {s.N, s.C}, random_values("dres", s.N * s.C)),
          dinp(context, dtype, {s.N, s.C}),
          dweight(context, gradient, {s.C}),
          dbias(context, gradient, {s.C}),
          scratch(
              context, DType::u8, {layernorm_backward_scratch_bytes(context.device(), s.N, s.C)}) {}

    LayerNormForward forward() const {
        return {.out = out,
                .mean = mean,
                .rstd = rstd,
                .inp = inp,
                .weight = weight,
                .bias = bias,
                .eps = kEps};
    }
    LayerNormBackward backward(bool accumulate) const {
        return {.dinp = dinp,
                .dweight = dweight,
                .dbias = dbias,
                .scratch = scratch,
                .dout = dout,
                .dresidual = ConstTensor{},
                .inp = inp,
                .weight = weight,
                .mean = mean,
                .rstd = rstd,
                .accumulate = accumulate};
    }

    TestTensor inp, weight, bias, out, mean, rstd, dout, dresidual, dinp, dweight, dbias, scratch;
};

// Runs body(context, dtype, shape) for every device, dtype and shape.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                if (is_left_out(shape.N * shape.C)) continue;
                CAPTURE(name_of(device));
                CAPTURE(name_of(dtype));
                CAPTURE(shape.N);
                CAPTURE(shape.C);
                body(*context, dtype, shape);
            }
        }
    }
}

}  // namespace

TEST_CASE("layernorm_forward: agrees with float64") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        layernorm_forward(context.compute_stream(), f.forward());
        const Oracle expected = forward_oracle(
            to_double(f.inp.values()), to_double(f.weight.values()), to_double(f.bias.values()));
        CHECK(difference(f.out.values(), expected.out, tolerance(dtype, 1.0, 8.0)) == "");
        CHECK(difference(f.mean.values(), expected.mean, tolerance(DType::f32, 1.0, 3.0)) == "");
        CHECK(difference(f.rstd.values(), expected.rstd, {1e-6, 1e-5}) == "");
    });
}

TEST_CASE("layernorm_forward: eps decides where the variance is tiny") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const std::vector<float> x = random_values("tiny", 4 * 64, -1e-3F, 1e-3F);
        Fixture f(*context, DType::f32, {4, 64});
        f.inp.set(x);
        for (const float eps : {1e-5F, 1e-6F}) {
            LayerNormForward args = f.forward();
            args.eps = eps;
            layernorm_forward(context->compute_stream(), args);
            const Oracle expected = forward_oracle(to_double(x), to_double(f.weight.values()),
                                                   to_double(f.bias.values()), eps);
            CHECK(difference(f.out.values(), expected.out, {1e-5, 1e-5}) == "");
        }
    }
}

TEST_CASE("layernorm_forward: a large mean does not eat the variance") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, DType::f32, {3, 256});
        std::vector<float> x = random_values("offset", 3 * 256);
        for (float& value : x)
            value += 1000.0F;
        f.inp.set(x);
        layernorm_forward(context->compute_stream(), f.forward());
        const Oracle expected =
            forward_oracle(to_double(x), to_double(f.weight.values()), to_double(f.bias.values()));
        CHECK(difference(f.out.values(), expected.out, {5e-4, 1e-4}) == "");
    }
}

TEST_CASE("residual_layernorm_forward: adds, rounds the sum, normalizes the rounded sum") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const TestTensor residual(context, dtype, {s.N, s.C});
        const ResidualLayerNormForward args{.residual = residual,
                                            .out = f.out,
                                            .mean = f.mean,
                                            .rstd = f.rstd,
                                            .inp1 = f.inp,
                                            .inp2 = f.dresidual,
                                            .weight = f.weight,
                                            .bias = f.bias,
                                            .eps = kEps};
        residual_layernorm_forward(context.compute_stream(), args);
        std::vector<float> sum = f.inp.values();
        const std::vector<float> other = f.dresidual.values();
        for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] += other[i];
        CHECK(residual.values() == rounded(sum, dtype));
        const Oracle expected = forward_oracle(
            to_double(residual.values()), to_double(f.weight.values()), to_double(f.bias.values()));
        CHECK(difference(f.out.values(), expected.out, tolerance(dtype, 1.0, 8.0)) == "");
    });
}

TEST_CASE("residual_layernorm_forward: works in place") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, {5, 96});
        const std::vector<float> before = f.inp.values();
        const std::vector<float> other = f.dresidual.values();
        residual_layernorm_forward(context->compute_stream(), {.residual = f.inp,
                                                               .out = f.out,
                                                               .mean = f.mean,
                                                               .rstd = f.rstd,
                                                               .inp1 = f.inp,
                                                               .inp2 = f.dresidual,
                                                               .weight = f.weight,
                                                               .bias = f.bias,
                                                               .eps = kEps});
        const std::vector<float> after = f.inp.values();
        int wrong = 0;
        for (std::size_t i = 0; i < after.size(); ++i)
            wrong += after[i] != before[i] + other[i];
        CHECK(wrong == 0);
    }
}

TEST_CASE("layernorm_backward: agrees with float64, with and without a residual gradient") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const Stream stream = context.compute_stream();
        layernorm_forward(stream, f.forward());
        layernorm_backward(stream, f.backward(false));
        BackwardOracle expected = backward_oracle(
            to_double(f.inp.values()), to_double(f.weight.values()), to_double(f.dout.values()));
        const double N = static_cast<double>(s.N);
        // dinp is a difference of terms multiplied by rstd, which is 316 where the variance is 0.
        const std::vector<float> rstd = f.rstd.values();
        const double scale = 4.0 * std::max(1.0F, *std::max_element(rstd.begin(), rstd.end()));
        CHECK(difference(f.dinp.values(), expected.dinp, tolerance(dtype, 16.0, scale)) == "");
        CHECK(difference(f.dweight.values(), expected.dweight,
                         tolerance(DType::f32, 16.0 * N, 4.0)) == "");
        CHECK(difference(f.dbias.values(), expected.dbias, tolerance(DType::f32, N, 2.0)) == "");

        LayerNormBackward with_residual = f.backward(false);
        with_residual.dresidual = f.dresidual;
        layernorm_backward(stream, with_residual);
        const std::vector<float> past = f.dresidual.values();
        for (std::size_t i = 0; i < past.size(); ++i)
            expected.dinp[i] += past[i];
        CHECK(difference(f.dinp.values(), expected.dinp, tolerance(dtype, 16.0, scale)) == "");
    });
}

TEST_CASE("layernorm_backward: dweight and dbias accumulate across calls, or are overwritten") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType gradient : float_dtypes()) {
            const Fixture f(*context, DType::f32, {9, 70}, gradient);
            const Stream stream = context->compute_stream();
            layernorm_forward(stream, f.forward());
            layernorm_backward(stream, f.backward(false));
            const std::vector<float> once = f.dweight.values();
            const std::vector<float> once_bias = f.dbias.values();
            layernorm_backward(stream, f.backward(true));
            std::vector<double> twice = to_double(once);
            std::vector<double> twice_bias = to_double(once_bias);
            for (double& value : twice)
                value *= 2.0;
            for (double& value : twice_bias)
                value *= 2.0;
            CHECK(difference(f.dweight.values(), twice, tolerance(gradient, 9.0, 2.0)) == "");
            CHECK(difference(f.dbias.values(), twice_bias, tolerance(gradient, 9.0, 2.0)) == "");
            layernorm_backward(stream, f.backward(false));
            CHECK(f.dweight.values() == once);
            CHECK(f.dbias.values() == once_bias);
        }
    }
}

TEST_CASE("layernorm_backward: dinp may overwrite dout or dresidual") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, {6, 100});
        const Stream stream = context->compute_stream();
        layernorm_forward(stream, f.forward());
        LayerNormBackward args = f.backward(false);
        args.dresidual = f.dresidual;
        layernorm_backward(stream, args);
        const std::vector<float> dinp = f.dinp.values();
        const std::vector<float> dweight = f.dweight.values();
        args.dinp = f.dresidual;
        layernorm_backward(stream, args);
        CHECK(f.dresidual.values() == dinp);
        args.dresidual = ConstTensor{};
        layernorm_backward(stream, args);
        const std::vector<float> without = f.dresidual.values();
        args.dinp = f.dout;
        layernorm_backward(stream, args);
        CHECK(f.dout.values() == without);
        CHECK(f.dweight.values() == dweight);
    }
}

TEST_CASE("layernorm: views that start at odd places agree with float64") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Shape s{7, 64};
            const std::int64_t count = s.N * s.C + 1;
            const TestTensor inp(*context, dtype, {count}, random_values("x", count, -2.0F, 3.0F));
            const TestTensor dout(*context, dtype, {count}, random_values("dout", count));
            const TestTensor out(*context, dtype, {count}), dinp(*context, dtype, {count});
            const Fixture f(*context, dtype, s);
            LayerNormForward forward = f.forward();
            forward.inp = inp.shifted({s.N, s.C});
            forward.out = out.shifted({s.N, s.C});
            LayerNormBackward backward = f.backward(false);
            backward.inp = forward.inp;
            backward.dout = dout.shifted({s.N, s.C});
            backward.dinp = dinp.shifted({s.N, s.C});
            layernorm_forward(context->compute_stream(), forward);
            layernorm_backward(context->compute_stream(), backward);
            const auto shifted = [](const TestTensor& tensor) {
                const std::vector<float> values = tensor.values();
                return std::vector<float>(values.begin() + 1, values.end());
            };
            const std::vector<double> x = to_double(shifted(inp));
            const std::vector<double> weight = to_double(f.weight.values());
            CHECK(difference(shifted(out),
                             forward_oracle(x, weight, to_double(f.bias.values())).out,
                             tolerance(dtype, 1.0, 8.0)) == "");
            const BackwardOracle expected = backward_oracle(x, weight, to_double(shifted(dout)));
            CHECK(difference(shifted(dinp), expected.dinp, tolerance(dtype, 16.0, 4.0)) == "");
            CHECK(difference(f.dweight.values(), expected.dweight,
                             tolerance(DType::f32, 16.0 * 7.0, 4.0)) == "");
        }
    }
}

TEST_CASE("layernorm_backward: agrees with finite differences of the forward pass") {
    const auto context = Context::make_cpu();
    const Fixture f(*context, DType::f32, {2, 9});
    layernorm_forward(context->compute_stream(), f.forward());
    layernorm_backward(context->compute_stream(), f.backward(false));
    const std::vector<double> weight = to_double(f.weight.values());
    const std::vector<double> bias = to_double(f.bias.values());
    const std::vector<double> dout = to_double(f.dout.values());
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& w) {
        const Oracle o = forward_oracle(x, w, bias);
        double sum = 0.0;
        for (std::size_t i = 0; i < o.out.size(); ++i)
            sum += o.out[i] * dout[i];
        return sum;
    };
    const std::vector<double> x = to_double(f.inp.values());
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> up = x;
        std::vector<double> down = x;
        up[i] += kStep;
        down[i] -= kStep;
        const double slope = (loss(up, weight) - loss(down, weight)) / (2.0 * kStep);
        CHECK(f.dinp.values()[i] == doctest::Approx(slope).epsilon(1e-3));
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
        std::vector<double> up = weight;
        std::vector<double> down = weight;
        up[i] += kStep;
        down[i] -= kStep;
        const double slope = (loss(x, up) - loss(x, down)) / (2.0 * kStep);
        CHECK(f.dweight.values()[i] == doctest::Approx(slope).epsilon(1e-3));
    }
}

TEST_CASE("layernorm: repeated calls give the same bits") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const Stream stream = context.compute_stream();
        layernorm_forward(stream, f.forward());
        layernorm_backward(stream, f.backward(false));
        const auto out = f.out.bytes();
        const auto dinp = f.dinp.bytes();
        const auto dweight = f.dweight.bytes();
        layernorm_forward(stream, f.forward());
        layernorm_backward(stream, f.backward(false));
        CHECK(f.out.bytes() == out);
        CHECK(f.dinp.bytes() == dinp);
        CHECK(f.dweight.bytes() == dweight);
    });
}

TEST_CASE("layernorm: more rows than a grid has blocks are refused before the launch") {
    if (!has_gpu()) return;
    const auto context = Context::make_cuda(0);
    const TestTensor small(*context, DType::f32, {8});
    constexpr std::int64_t kRows = std::int64_t{1} << 31;
    const auto view = [&](std::initializer_list<std::int64_t> dims) {
        return make_tensor(small.tensor().data, DType::f32, dims, Device::cuda);
    };
    const LayerNormForward args{.out = view({kRows, 3}),
                                .mean = view({kRows}),
                                .rstd = view({kRows}),
                                .inp = view({kRows, 3}),
                                .weight = view({3}),
                                .bias = view({3}),
                                .eps = kEps};
    CHECK_THROWS_WITH_AS(layernorm_forward(context->compute_stream(), args),
                         "layernorm_forward on (2147483648, 3) f32 needs 2147483648 blocks, a grid "
                         "has at most 2147483647; split the batch",
                         Error);
}

TEST_CASE("layernorm: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {3, 4});
    const TestTensor three(*context, DType::f32, {3});
    const TestTensor half(*context, DType::bf16, {4});
    LayerNormForward args = f.forward();
    args.weight = three;
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args),
                         "layernorm_forward: weight has 3 elements but C=4; pass the weight of "
                         "this layer's width",
                         Error);
    args = f.forward();
    args.bias = half;
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args),
                         "layernorm_forward: bias is bf16, must be f32", Error);
    args = f.forward();
    args.eps = 0.0F;
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args),
                         doctest::Contains("eps = 0, must be above 0"), Error);
    args = f.forward();
    args.out = Tensor{};
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args), doctest::Contains("out is a null view"),
                         Error);
    args = f.forward();
    args.inp.device = Device::cuda;
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args),
                         doctest::Contains("lies on cuda, the stream on cpu"), Error);
    args = f.forward();
    args.inp = make_tensor(f.inp.tensor().data, DType::f32, {1, (1 << 30) + 1}, Device::cpu);
    CHECK_THROWS_WITH_AS(layernorm_forward(stream, args),
                         "layernorm_forward: inp is (1, 1073741825) f32, a row of 1073741825 "
                         "elements, must have at most 1073741824",
                         Error);
    LayerNormBackward backward = f.backward(false);
    backward.rstd = half;
    CHECK_THROWS_WITH_AS(layernorm_backward(stream, backward),
                         doctest::Contains("rstd is (4) bf16, must be (3) bf16"), Error);
    ResidualLayerNormForward fused{.residual = f.out,
                                   .out = f.out,
                                   .mean = f.mean,
                                   .rstd = f.rstd,
                                   .inp1 = f.inp,
                                   .inp2 = three,
                                   .weight = f.weight,
                                   .bias = f.bias,
                                   .eps = kEps};
    CHECK_THROWS_WITH_AS(residual_layernorm_forward(stream, fused),
                         "residual_layernorm_forward: inp2 is (3) f32, must be (3, 4) f32", Error);
}
