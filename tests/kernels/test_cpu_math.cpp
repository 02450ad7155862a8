// Goal: the vectorizable functions are as accurate as their header says, over all floats, and treat
// infinities and NaN as the C library does. Method: float64 results of the C library.
#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/cpu_math.h"

using namespace ingot;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance between neighbouring floats at |exact|; at least the smallest denormal.
double ulp_at(double exact) {
    const int exponent = std::max(std::ilogb(exact == 0.0 ? 1e-300 : exact), -126);
    return std::ldexp(1.0, exponent - 23);
}

// Calls body with about 2 million floats: every 2048th bit pattern, so every exponent, both signs.
template <class Body>
void for_many_floats(Body&& body) {
    for (std::uint64_t bits = 0; bits < 0x100000000ULL; bits += 2039) {
        const float x = cpu_math::float_of(static_cast<std::uint32_t>(bits));
        if (!std::isnan(x)) body(x);
    }
}

}  // namespace

TEST_CASE("cpu_math::exp: within 2 ulp of float64 over all floats, denormal results included") {
    double worst = 0.0;
    float where = 0.0F;
    const auto measure = [&](float x) {
        const double exact = std::exp(static_cast<double>(x));
        const float result = cpu_math::exp(x);
        // Beyond the largest float the nearest float is infinity.
        const double error =
            static_cast<float>(exact) == result ? 0.0 : std::fabs(result - exact) / ulp_at(exact);
        if (!(error <= worst)) {
            worst = error;
            where = x;
        }
    };
    for_many_floats(measure);
    for (int i = 0; i <= 2000000; ++i)
        measure(static_cast<float>(-105.0 + i * 1e-4));
    CAPTURE(where);
    CHECK(worst <= 2.0);
    CHECK(worst > 0.3);  // the measure sees errors at all
}

TEST_CASE("cpu_math::exp: limits") {
    CHECK(cpu_math::exp(0.0F) == 1.0F);
    CHECK(cpu_math::exp(-0.0F) == 1.0F);
    CHECK(cpu_math::exp(-kInf) == 0.0F);
    CHECK(cpu_math::exp(kInf) == kInf);
    CHECK(std::isnan(cpu_math::exp(kNan)));
    CHECK(std::isnan(cpu_math::exp(-kNan)));
    CHECK(cpu_math::exp(88.7228F) < kInf);
    CHECK(cpu_math::exp(88.7229F) == kInf);
    CHECK(cpu_math::exp(1e30F) == kInf);
    CHECK(cpu_math::exp(-103.9F) > 0.0F);
    CHECK(cpu_math::exp(-104.0F) == 0.0F);
    CHECK(cpu_math::exp(-1e30F) == 0.0F);
}

TEST_CASE("cpu_math::sigmoid: within 5 ulp of float64, in the far tail too") {
    double worst = 0.0;
    float where = 0.0F;
    for_many_floats([&](float x) {
        const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
        if (exact < 1e-37) return;  // 1 / (1 + inf) is 0 where the exact value is below every float
        const double error = std::fabs(cpu_math::sigmoid(x) - exact) / ulp_at(exact);
        if (!(error <= worst)) {
            worst = error;
            where = x;
        }
    });
    CAPTURE(where);
    CHECK(worst <= 5.0);
    CHECK(cpu_math::sigmoid(-kInf) == 0.0F);
    CHECK(cpu_math::sigmoid(kInf) == 1.0F);
    CHECK(std::isnan(cpu_math::sigmoid(kNan)));
}

TEST_CASE("cpu_math::gelu and its derivative: within 1e-6 of float64 relative to max(1, |x|)") {
    double worst = 0.0;
    double worst_slope = 0.0;
    const auto measure = [&](float f) {
        const double x = f;
        const double c = std::sqrt(2.0 / M_PI);
        const double t = std::tanh(c * (x + 0.044715 * x * x * x));
        const double value = 0.5 * x * (1.0 + t);
        const double slope =
            0.5 * (1.0 + t) + (std::fabs(t) == 1.0
                                   ? 0.0
                                   : 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * x * x));
        const double scale = std::fmax(1.0, std::fabs(x));
        const double error = std::fabs(cpu_math::gelu(f) - value) / scale;
        const double slope_error = std::fabs(cpu_math::gelu_derivative(f) - slope);
        worst = error <= worst ? worst : error;
        worst_slope = slope_error <= worst_slope ? worst_slope : slope_error;
    };
    for (int i = -200000; i <= 200000; ++i)
        measure(static_cast<float>(i * 1e-4));
    for (const float x : {100.0F, -100.0F, 1e10F, -1e10F, 1e30F, -1e30F, 1e-40F, -1e-40F})
        measure(x);
    CHECK(worst <= 1e-6);
    CHECK(worst_slope <= 1e-6);
    CHECK(std::isnan(cpu_math::gelu(kNan)));
    CHECK(std::isnan(cpu_math::gelu_derivative(kNan)));
}
