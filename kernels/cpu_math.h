// Elementary functions of the CPU backend that the compiler can vectorize: no branches, no calls,
// no tables. The C library's expf is one call per element.
#pragma once

#include <cstdint>
#include <cstring>

namespace ingot::cpu_math {

// value with the bits of an integer, and back.
inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}
inline std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// value clamped to [-limit, limit]; NaN becomes a limit. Integer comparisons, because the compiler
// leaves a loop with floating-point ones scalar (they may trap).
inline float clamp(float value, float limit) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t most = bits_of(limit);
    return float_of((bits & 0x80000000U) | (magnitude < most ? magnitude : most));
}

// result, or NaN where value is.
inline float keep_nan(float result, float value) {
    const std::uint32_t is_nan = (bits_of(value) & 0x7fffffffU) > 0x7f800000U ? ~0U : 0U;
    return float_of(bits_of(result) | is_nan);
}

// e^x, within 2 units in the last place of the exact value over all floats (denormal results
// included: within one denormal step). exp(-inf) = 0, exp(inf) = inf, exp(NaN) = NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n e^r. The Taylor polynomial of degree 7 of e^r has
// a relative error below 0.35^8 / 8! < 6e-9. 2^n is applied in two factors, so that n >= 128
// and denormal results need no special case.
inline float exp(float x) {
    constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    constexpr float kLog2e = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;  // 9 bits after the point: n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;
    // exp(104) is infinity and exp(-104) rounds to zero, as everything beyond does.
    const float clamped = clamp(x, 104.0F);
    const float shifted = clamped * kLog2e + kMagic;
    const float n = shifted - kMagic;
    const float r = (clamped - n * kLn2High) - n * kLn2Low;
    float p = 1.0F / 5040.0F;
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    // n + 256 as an unsigned number, in two halves: 2^n = 2^(half - 128) * 2^(rest - 128).
    const std::uint32_t biased = bits_of(shifted) - bits_of(kMagic) + 256U;
    const std::uint32_t half = biased >> 1U;
    const float scale1 = float_of((half - 1U) << 23U);
    const float scale2 = float_of((biased - half - 1U) << 23U);
    return keep_nan(p * scale1 * scale2, x);
}

// 1 / (1 + e^-x), relative error below 5 units in the last place also where it is tiny.
inline float sigmoid(float x) {
    return 1.0F / (1.0F + exp(-x));
}

// GELU in its tanh form (kernels/gelu.h). 0.5 (1 + tanh u) is sigmoid(2 u), which does not cancel
// for negative u and needs one exponential.
constexpr float kTwoSqrt2OverPi = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

inline float gelu(float x) {
    return x * sigmoid(kTwoSqrt2OverPi * (x + kGeluCubic * x * x * x));
}

// d gelu(x) / dx = s + x s (1 - s) (2 u)' with s = sigmoid(2 u) and 1 - s = e^(-2 u) s, which does
// not cancel. At |x| = 10 it is 0 or 1 within 1e-35; clamping there keeps e^(-2 u) finite.
inline float gelu_derivative(float x) {
    const float c = clamp(x, 10.0F);
    const float e = exp(-kTwoSqrt2OverPi * (c + kGeluCubic * c * c * c));
    const float s = 1.0F / (1.0F + e);
    const float slope = kTwoSqrt2OverPi * (1.0F + 3.0F * kGeluCubic * c * c);
    return keep_nan(s + c * s * (e * s) * slope, x);
}

}  // namespace ingot::cpu_math
