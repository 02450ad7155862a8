// GELU in its tanh form and its slope in float64, and what the hardware's tanh may cost them.
#pragma once

namespace ingot::test {

// With u(x) = sqrt(2 / pi) (x + 0.044715 x^3) and t = tanh(u(x)):
double gelu_oracle(double x);        // x (1 + t) / 2
double gelu_slope_oracle(double x);  // (1 + t) / 2 + x (1 - t^2) u' / 2

// The most by which they move when t comes out as t + d with |d| <= e |t|, e = 2^-11 (the PTX ISA's
// limit for tanh.approx.f32). gelu moves by x d / 2. The slope moves by
// d (1/2 - x t u') - d^2 x u' / 2, its first and second derivative to t; over |x| <= 3 that is
// largest at the ends, 4.77 e.
double gelu_tanh_error(double x);
double gelu_slope_tanh_error(double x);

}  // namespace ingot::test
