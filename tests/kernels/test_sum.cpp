// Goal: the sum of losses is right for any size and order of magnitude. Method: float64 loops,
// sizes that stall a float sum, poisoned outputs, guard bytes, one case per error.
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/sum.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("sum: agrees with float64, overwrites or adds") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        for (const std::int64_t n : {0, 1, 2, 31, 257, 4096, 100003}) {
            CAPTURE(name_of(device));
            CAPTURE(n);
            const TestTensor inp(*context, DType::f32, {n}, random_values("x", n, -1.0F, 2.0F));
            const TestTensor out(*context, DType::f32, {1});
            double expected = 0.0;
            for (const float value : inp.values())
                expected += value;
            sum(stream, {.out = out, .inp = inp, .accumulate = false});
            const Tolerance limit = tolerance(DType::f32, static_cast<double>(n), 2.0);
            CHECK(difference(out.values(), {expected}, limit) == "");
            sum(stream, {.out = out, .inp = inp, .accumulate = true});
            CHECK(difference(out.values(), {2.0 * expected}, limit) == "");
        }
    }
}

TEST_CASE("sum: 2^25 ones do not stall at 2^24") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        constexpr std::int64_t kRows = std::int64_t{1} << 15;
        const TestTensor inp(*context, DType::f32, {kRows, 1024},
                             std::vector<float>(static_cast<std::size_t>(kRows) * 1024, 1.0F));
        const TestTensor out(*context, DType::f32, {1});
        sum(context->compute_stream(), {.out = out, .inp = inp, .accumulate = false});
        CHECK(out.values()[0] == 0x1.0p25F);
    }
}

TEST_CASE("sum: NaN stays NaN, and the bits do not depend on repetition or threads") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        std::vector<float> values = random_values("x", 5003);
        TestTensor inp(*context, DType::f32, {5003}, values);
        const TestTensor out(*context, DType::f32, {1});
        std::vector<std::uint8_t> first;
        for (const int threads : {1, 1, 2, 3}) {
            const ThreadCount guard(threads);
            sum(stream, {.out = out, .inp = inp, .accumulate = false});
            if (first.empty()) first = out.bytes();
            CHECK(out.bytes() == first);
        }
        values[4000] = std::nanf("");
        inp.set(values);
        sum(stream, {.out = out, .inp = inp, .accumulate = false});
        CHECK(std::isnan(out.values()[0]));
    }
}

TEST_CASE("sum: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const TestTensor two(*context, DType::f32, {2}, {1.0F, 2.0F});
    const TestTensor one(*context, DType::f32, {1});
    const TestTensor half(*context, DType::bf16, {1});
    const auto fails = [&](const Sum& args, const char* text) {
        CHECK_THROWS_WITH_AS(sum(context->compute_stream(), args), doctest::Contains(text), Error);
    };
    fails({.out = two, .inp = two, .accumulate = false}, "sum: out is (2) f32, must be (1) f32");
    fails({.out = half, .inp = two, .accumulate = false}, "sum: out is bf16, must be f32");
    fails({.out = one, .inp = half, .accumulate = false}, "sum: inp is bf16, must be f32");
    fails({.out = Tensor{}, .inp = two, .accumulate = false}, "sum: out is a null view");
    ConstTensor elsewhere = two;
    elsewhere.device = Device::cuda;
    fails({.out = one, .inp = elsewhere, .accumulate = false},
          "sum: inp (2) f32 lies on cuda, the stream on cpu");
}
