// Goal: the gradient's norm is right for any size of sum, clipping acts exactly beyond its limit,
// and anything that is not finite is reported. Method: float64 loops, values chosen to overflow or
// to stall a float sum, a table of limits, guard bytes, one case per error.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/global_norm.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Fixture {
    Fixture(Context& context, DType dtype, std::int64_t n, const std::vector<float>& values)
        : inp(context, dtype, {n}, values),
          out(context, DType::f32, {1}),
          scratch(context, DType::u8, {squared_norm_scratch_bytes(context.device(), n)}),
          stream(context.compute_stream()) {}

    SquaredNorm args(bool accumulate) const {
        return {.out = out, .scratch = scratch, .inp = inp, .accumulate = accumulate};
    }
    float squared(bool accumulate = false) const {
        squared_norm(stream, args(accumulate));
        return out.values()[0];
    }

    TestTensor inp, out, scratch;
    Stream stream;
};

double squares_oracle(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values)
        sum += static_cast<double>(value) * value;
    return sum;
}

// The scalars that clip_by_global_norm leaves.
std::vector<float> clip(Context& context,
                        const std::vector<float>& squares,
                        float inv_tokens,
                        float max_norm,
                        ConstTensor loss = {}) {
    const TestTensor parts(context, DType::f32, {static_cast<std::int64_t>(squares.size())},
                           squares);
    const std::vector<float> host = {1e-3F, 0.1F, 0.001F, inv_tokens, max_norm, 7.0F, 7.0F, 7.0F};
    const TestTensor scalars(context, DType::f32, {kNumStepScalars}, host);
    clip_by_global_norm(context.compute_stream(),
                        {.scalars = scalars, .squares = parts, .loss = loss});
    const std::vector<float> result = scalars.values();
    for (int i = 0; i <= kMaxNorm; ++i)
        CHECK(result[static_cast<std::size_t>(i)] == host[static_cast<std::size_t>(i)]);
    return result;
}

}  // namespace

TEST_CASE("squared_norm: agrees with float64 and adds to what was there when asked") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const std::int64_t n : {1, 2, 7, 255, 256, 257, 1031, 65536, 1000003}) {
                CAPTURE(name_of(device));
                CAPTURE(name_of(dtype));
                CAPTURE(n);
                const Fixture f(*context, dtype, n, random_values("x", n));
                const double expected = squares_oracle(f.inp.values());
                // All terms are positive, so the relative error of any order is small.
                CHECK(f.squared() == doctest::Approx(expected).epsilon(1e-6));
                CHECK(f.squared(true) == doctest::Approx(2.0 * expected).epsilon(1e-6));
                CHECK(f.squared() == doctest::Approx(expected).epsilon(1e-6));
            }
        }
    }
}

TEST_CASE("squared_norm: the gradient may start at an odd place") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, 4096, random_values("x", 4096));
            std::vector<float> values = f.inp.values();
            values.insert(values.begin(), 1e15F);
            const TestTensor inp(*context, dtype, {4097}, values);
            const TestTensor out(*context, DType::f32, {1});
            squared_norm(context->compute_stream(), {.out = out,
                                                     .scratch = f.scratch,
                                                     .inp = inp.shifted({4096}),
                                                     .accumulate = false});
            const double expected = squares_oracle(f.inp.values());
            CHECK(out.values()[0] == doctest::Approx(expected).epsilon(1e-6));
        }
    }
}

TEST_CASE("squared_norm: of no elements is 0") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, 0, {});
        CHECK(f.squared() == 0.0F);
    }
}

TEST_CASE("squared_norm: a sum of 2^25 ones does not stall at 2^24") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        constexpr std::int64_t kCount = std::int64_t{1} << 25;
        const Fixture f(*context, DType::bf16, kCount,
                        std::vector<float>(static_cast<std::size_t>(kCount), 1.0F));
        CHECK(f.squared() == 0x1.0p25F);
    }
}

TEST_CASE("squared_norm: NaN, infinity and a sum beyond fp32 are not finite") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const std::int64_t where : {0, 500, 999}) {
            std::vector<float> values = random_values("x", 1000);
            values[static_cast<std::size_t>(where)] = std::nanf("");
            CHECK(std::isnan(Fixture(*context, DType::f32, 1000, values).squared()));
            values[static_cast<std::size_t>(where)] = -kInfinity;
            CHECK(Fixture(*context, DType::bf16, 1000, values).squared() == kInfinity);
        }
        CHECK(Fixture(*context, DType::f32, 4, std::vector<float>(4, 1.5e19F)).squared() ==
              kInfinity);
        CHECK(Fixture(*context, DType::f32, 1, {1.5e19F}).squared() ==
              doctest::Approx(2.25e38).epsilon(1e-6));
    }
}

TEST_CASE("clip_by_global_norm: scales down to the limit, and only beyond it") {
    struct Case {
        std::vector<float> squares;
        float inv_tokens, max_norm;
        double norm, factor;
    };
    const Case cases[] = {
        {{9.0F, 16.0F}, 1.0F, 0.0F, 5.0, 1.0},              // 0: clipping is off
        {{9.0F, 16.0F}, 1.0F, 5.0F, 5.0, 1.0},              // exactly at the limit
        {{9.0F, 16.0F}, 0.2F, 1.0F, 1.0, 0.2},              // the same after 1 / tokens
        {{9.0F, 16.0F}, 1.0F, 4.9999995F, 5.0, 0.9999999},  // one float below
        {{9.0F, 16.0F}, 1.0F, 2.5F, 5.0, 0.5},
        {{9.0F, 16.0F}, 0.5F, 1.0F, 2.5, 0.2},
        {{100.0F}, 0.01F, 1.0F, 0.1, 0.01},
        {{0.0F, 0.0F}, 0.125F, 1.0F, 0.0, 0.125},
        {{3e38F, 3e38F, 3e38F}, 1e-6F, 1.0F, 3e13, 1e-6 / 3e13},  // the sum is beyond fp32
    };
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const Case& c : cases) {
            CAPTURE(c.norm);
            CAPTURE(c.max_norm);
            const auto scalars = clip(*context, c.squares, c.inv_tokens, c.max_norm);
            CHECK(scalars[kGradNorm] == doctest::Approx(c.norm).epsilon(2e-7));
            CHECK(scalars[kGradFactor] == doctest::Approx(c.factor).epsilon(2e-7));
            CHECK(scalars[kIsFinite] == 1.0F);
        }
        CHECK(clip(*context, {25.0F}, 0.2F, 1.0F)[kGradFactor] == 0.2F);
        CHECK(clip(*context, {25.0F}, 1.0F, 4.9999995F)[kGradFactor] < 1.0F);
    }
}

TEST_CASE("clip_by_global_norm: after clipping the mean gradient has the norm of the limit") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const std::vector<float> squares = random_values("parts", 149, 1.0F, 1000.0F);
        double sum = 0.0;
        for (const float part : squares)
            sum += part;
        for (const float max_norm : {0.01F, 0.3F, 1.0F}) {
            const auto scalars = clip(*context, squares, 1.0F / 64.0F, max_norm);
            CHECK(scalars[kGradNorm] == doctest::Approx(std::sqrt(sum) / 64.0).epsilon(1e-6));
            CHECK(std::sqrt(sum) * scalars[kGradFactor] == doctest::Approx(max_norm).epsilon(1e-6));
        }
    }
}

TEST_CASE("clip_by_global_norm: a norm that is not finite clears the flag and the factor") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const float bad : {kInfinity, std::nanf("")}) {
            for (const float max_norm : {0.0F, 1.0F}) {
                const auto scalars = clip(*context, {1.0F, bad, 1.0F}, 0.5F, max_norm);
                CHECK(scalars[kIsFinite] == 0.0F);
                CHECK(scalars[kGradFactor] == 0.0F);
                CHECK_FALSE(std::isfinite(scalars[kGradNorm]));
            }
        }
        CHECK(clip(*context, {1.0F}, kInfinity, 1.0F)[kIsFinite] == 0.0F);  // no valid token
    }
}

TEST_CASE("clip_by_global_norm: a loss that is not finite clears the flag, a finite one does not") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
            const TestTensor loss(*context, DType::f32, {1}, {bad});
            const auto scalars = clip(*context, {16.0F}, 0.5F, 1.0F, loss);
            CHECK(scalars[kIsFinite] == 0.0F);
            CHECK(scalars[kGradFactor] == 0.0F);
            CHECK(scalars[kGradNorm] == 2.0F);
        }
        const TestTensor loss(*context, DType::f32, {1}, {123.0F});
        const auto scalars = clip(*context, {16.0F}, 0.5F, 1.0F, loss);
        CHECK(scalars[kIsFinite] == 1.0F);
        CHECK(scalars[kGradFactor] == 0.25F);
    }
}

TEST_CASE("squared_norm: repeated calls and other numbers of threads give the same bits") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, 300007, random_values("x", 300007));
        const float first = f.squared();
        for (const int threads : {1, 2, 3}) {
            const ThreadCount guard(threads);
            CHECK(f.squared() == first);
        }
    }
}

TEST_CASE("global_norm: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Fixture f(*context, DType::f32, 4, {1.0F, 2.0F, 3.0F, 4.0F});
    const TestTensor half(*context, DType::bf16, {1});
    const TestTensor ids(*context, {2}, std::vector<std::int32_t>{1, 2});
    const auto fails = [&](const SquaredNorm& args, const char* text) {
        CHECK_THROWS_WITH_AS(squared_norm(f.stream, args), doctest::Contains(text), Error);
    };
    SquaredNorm args = f.args(false);
    args.out = f.inp;
    fails(args, "squared_norm: out is (4) f32, must be (1) f32");
    args.out = half;
    fails(args, "squared_norm: out is bf16, must be f32");
    args.out = Tensor{};
    fails(args, "squared_norm: out is a null view");
    args = f.args(false);
    args.inp = ids;
    fails(args, "squared_norm: inp is i32, must be f32 or bf16");
    args = f.args(false);
    args.inp.device = Device::cuda;
    fails(args, "squared_norm: inp (4) f32 lies on cuda, the stream on cpu");

    const TestTensor scalars(*context, DType::f32, {kNumStepScalars});
    const auto clip_fails = [&](const ClipByGlobalNorm& bad, const char* text) {
        CHECK_THROWS_WITH_AS(clip_by_global_norm(f.stream, bad), doctest::Contains(text), Error);
    };
    clip_fails({.scalars = f.inp, .squares = f.out, .loss = ConstTensor{}},
               "clip_by_global_norm: scalars is (4) f32, must be (8) f32");
    clip_fails({.scalars = scalars, .squares = half, .loss = ConstTensor{}},
               "clip_by_global_norm: squares is bf16, must be f32");
    clip_fails({.scalars = scalars, .squares = f.inp.tensor().view({2, 2}), .loss = ConstTensor{}},
               "squares is (2, 2) f32, must be (n) with at least one part");
    clip_fails({.scalars = scalars, .squares = f.inp.tensor().slice(0, 0), .loss = ConstTensor{}},
               "squares is (0) f32, must be (n) with at least one part");
    clip_fails({.scalars = scalars, .squares = f.inp, .loss = f.inp},
               "clip_by_global_norm: loss is (4) f32, must be (1) f32");
    clip_fails({.scalars = scalars, .squares = f.inp, .loss = half},
               "clip_by_global_norm: loss is bf16, must be f32");
}
