#include "tests/support/gelu_oracle.h"

#include <cmath>

namespace ingot::test {
namespace {

constexpr double kTanhError = 0x1.0p-11;

double tanh_of_inner(double x) {
    return std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
}

double inner_slope(double x) {
    return std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

}  // namespace

double gelu_oracle(double x) {
    return 0.5 * x * (1.0 + tanh_of_inner(x));
}

double gelu_slope_oracle(double x) {
    const double t = tanh_of_inner(x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope(x);
}

double gelu_tanh_error(double x) {
    return 0.5 * kTanhError * std::fabs(x * tanh_of_inner(x));
}

double gelu_slope_tanh_error(double x) {
    const double t = tanh_of_inner(x);
    const double d = kTanhError * std::fabs(t);
    return d * std::fabs(0.5 - x * t * inner_slope(x)) +
           0.5 * d * d * std::fabs(x * inner_slope(x));
}

}  // namespace ingot::test
