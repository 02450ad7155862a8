// Comparisons with float64 oracles. A failure says what was compared, the first bad coordinate,
// both values, the error and the limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace ingot::test {

// |actual - expected| <= abs + rel * |expected|, element by element. Derivation: a result rounded
// once to dtype has rel >= unit roundoff u (f32 2^-24, bf16 2^-8); a sum of K products in fp32 adds
// about sqrt(K) * 2^-24 times the size of its terms, which goes into abs.
struct Tolerance {
    double abs;
    double rel;
};

// rel = 4 u of the dtype; abs = scale * sqrt(terms) * 2^-23, plus u * scale for bf16 because inputs
// of later stages were rounded. `scale` is the size of a typical term.
Tolerance tolerance(DType dtype, double terms = 1.0, double scale = 1.0);

// Empty when all elements agree, else the message. NaN never agrees.
std::string difference(const std::vector<float>& actual,
                       const std::vector<double>& expected,
                       const Tolerance& limit);
// The same with a limit of its own for each element.
std::string difference_within(const std::vector<float>& actual,
                              const std::vector<double>& expected,
                              const std::vector<double>& limits);

// sqrt(sum (a - e)^2) / sqrt(sum e^2); infinity when anything is NaN.
double relative_error(const std::vector<float>& actual, const std::vector<double>& expected);

std::vector<double> to_double(const std::vector<float>& values);

}  // namespace ingot::test
