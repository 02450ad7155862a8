// Goal: conversion rounds to nearest, ties to even, and loses nothing that bf16 can hold. Method:
// all 65536 bf16 values, a float64 rounding oracle, ties and limits, guard bytes, one case per
// error.
#include <cmath>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/cast.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

namespace {

// The nearest multiple of bf16's spacing at x, by rounding in float64. Finite x only.
double nearest_bf16(double x) {
    if (x == 0.0) return x;
    const int exponent = std::max(std::ilogb(x), -126);
    const double spacing = std::ldexp(1.0, exponent - 7);
    const double result = std::nearbyint(x / spacing) * spacing;
    const double largest = std::ldexp(255.0, 120);
    if (std::fabs(result) > largest) return std::copysign(HUGE_VAL, x);
    return result;
}

std::vector<float> interesting_values() {
    std::vector<float> values = random_values("wide", 997, -300.0F, 300.0F);
    for (const float base : {1.0F, -1.0F, 0x1.02p0F, 0x1.fep5F, 0x1.0p-126F, 0x1.0p-130F}) {
        for (int step = -5; step <= 5; ++step) {
            values.push_back(base * (1.0F + static_cast<float>(step) * 0x1.0p-9F));
            values.push_back(base * (1.0F + static_cast<float>(step) * 0x1.0p-23F));
        }
    }
    for (const float value : {0.0F, -0.0F, 0x1.0p-149F, std::numeric_limits<float>::max(),
                              0x1.fep127F, 0x1.fefffep127F, 0x1.ffp127F}) {
        values.push_back(value);
        values.push_back(-value);
    }
    return values;
}

}  // namespace

TEST_CASE("cast: to bf16 rounds to nearest, ties to even") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const std::vector<float> values = interesting_values();
        const std::int64_t n = static_cast<std::int64_t>(values.size());
        const TestTensor inp(*context, DType::f32, {n}, values);
        const TestTensor out(*context, DType::bf16, {n});
        cast(context->compute_stream(), {.out = out, .inp = inp});
        const std::vector<float> result = out.values();
        for (std::size_t i = 0; i < values.size(); ++i) {
            CAPTURE(values[i]);
            CHECK(result[i] == nearest_bf16(values[i]));
            CHECK(std::signbit(result[i]) == std::signbit(values[i]));
        }
    }
}

TEST_CASE("cast: every bf16 value survives the way to f32 and back, NaN as NaN") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        const TestTensor raw(*context, DType::u8, {2 * 65536});
        std::vector<std::uint16_t> bits(65536);
        for (std::size_t i = 0; i < bits.size(); ++i)
            bits[i] = static_cast<std::uint16_t>(i);
        copy(stream, raw, make_tensor(bits.data(), DType::u8, {2 * 65536}, Device::cpu));
        const ConstTensor all =
            make_tensor(raw.tensor().data, DType::bf16, {256, 256}, context->device());
        const TestTensor wide(*context, DType::f32, {65536});
        const TestTensor back(*context, DType::bf16, {65536});
        cast(stream, {.out = wide, .inp = all});
        cast(stream, {.out = back, .inp = wide});
        const std::vector<float> floats = wide.values();
        const std::vector<std::uint8_t> bytes = back.bytes();
        int wrong = 0;
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const std::uint32_t wide_bits = static_cast<std::uint32_t>(bits[i]) << 16;
            float expected;
            std::memcpy(&expected, &wide_bits, 4);
            std::uint16_t returned;
            std::memcpy(&returned, &bytes[2 * i], 2);
            if (std::isnan(expected)) {
                wrong += std::isnan(floats[i]) && std::isnan(to_float(bf16{returned})) ? 0 : 1;
            } else {
                wrong += std::memcmp(&floats[i], &expected, 4) == 0 && returned == bits[i] ? 0 : 1;
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("cast: infinity stays infinite, NaN becomes no infinity") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        float smallest_nan;  // rounding its bits up or truncating them would give infinity
        const std::uint32_t bits = 0x7f800001U;
        std::memcpy(&smallest_nan, &bits, 4);
        const TestTensor inp(*context, DType::f32, {4},
                             {kInfinity, -kInfinity, smallest_nan, -std::nanf("")});
        const TestTensor out(*context, DType::bf16, {4});
        cast(context->compute_stream(), {.out = out, .inp = inp});
        const std::vector<float> result = out.values();
        CHECK(result[0] == kInfinity);
        CHECK(result[1] == -kInfinity);
        CHECK(std::isnan(result[2]));
        CHECK(std::isnan(result[3]));
    }
}

TEST_CASE("cast: between equal types copies, of any size and shape") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const std::int64_t n : {0, 1, 3, 8, 1021, 70001}) {
                const TestTensor inp(*context, dtype, {n, 1}, random_values("x", n));
                const TestTensor out(*context, dtype, {n});
                const ThreadCount guard(static_cast<int>(n % 3) + 1);
                cast(context->compute_stream(), {.out = out, .inp = inp});
                CHECK(out.bytes() == inp.bytes());
            }
        }
    }
}

TEST_CASE("cast and fill: views may start at odd places") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        const std::vector<float> values = random_values("x", 641);
        const TestTensor wide(*context, DType::f32, {641}, values);
        const TestTensor narrow(*context, DType::bf16, {641}), back(*context, DType::f32, {641});
        cast(stream, {.out = narrow.shifted({640}), .inp = wide.shifted({640})});
        cast(stream, {.out = back.shifted({640}), .inp = narrow.shifted({640})});
        std::vector<float> result = back.values();
        CHECK(std::isnan(result[0]));
        result[0] = values[0];
        std::vector<float> expected = rounded(values, DType::bf16);
        expected[0] = values[0];
        CHECK(result == expected);
        fill(stream, {.out = narrow.shifted({640}), .value = 3.0F});
        std::vector<float> filled = narrow.values();
        CHECK(std::isnan(filled[0]));
        filled.erase(filled.begin());
        CHECK(filled == std::vector<float>(640, 3.0F));
    }
}

TEST_CASE("fill: sets every element to the rounded value") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const std::int64_t n : {0, 1, 3, 8, 1021, 70001}) {
                for (const float value : {0.0F, 1.0F, 1.00390625F, -2.7F}) {
                    const TestTensor out(*context, dtype, {n});
                    fill(context->compute_stream(), {.out = out, .value = value});
                    const std::vector<float> all(static_cast<std::size_t>(n), value);
                    CHECK(out.values() == rounded(all, dtype));
                }
            }
        }
    }
}

TEST_CASE("cast: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const TestTensor four(*context, DType::f32, {2, 2});
    const TestTensor three(*context, DType::bf16, {3});
    const TestTensor ids(*context, {4}, std::vector<std::int32_t>{1, 2, 3, 4});
    const auto fails = [&](const Cast& args, const char* text) {
        CHECK_THROWS_WITH_AS(cast(stream, args), doctest::Contains(text), Error);
    };
    fails({.out = three, .inp = four},
          "cast: out is (3) bf16, must have the 4 elements of inp (2, 2) f32");
    fails({.out = four, .inp = ids}, "cast: inp is i32, must be f32 or bf16");
    fails({.out = ids, .inp = four}, "cast: out is i32, must be f32 or bf16");
    fails({.out = Tensor{}, .inp = four}, "cast: out is a null view");
    ConstTensor elsewhere = four;
    elsewhere.device = Device::cuda;
    fails({.out = four, .inp = elsewhere}, "cast: inp (2, 2) f32 lies on cuda, the stream on cpu");
    CHECK_THROWS_WITH_AS(fill(stream, {.out = ids, .value = 1.0F}),
                         "fill: out is i32, must be f32 or bf16", Error);
}
