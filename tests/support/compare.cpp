#include "tests/support/compare.h"

#include <cmath>
#include <limits>

#include "engine/core/check.h"

namespace ingot::test {

Tolerance tolerance(DType dtype, double terms, double scale) {
    const double roundoff = dtype == DType::bf16 ? 0x1.0p-8 : 0x1.0p-24;
    const double sum_error = scale * std::sqrt(terms) * 0x1.0p-23;
    return {sum_error + (dtype == DType::bf16 ? roundoff * scale : 0.0), 4.0 * roundoff};
}

std::string difference(const std::vector<float>& actual,
                       const std::vector<double>& expected,
                       const Tolerance& limit) {
    std::vector<double> limits;
    limits.reserve(expected.size());
    for (const double value : expected)
        limits.push_back(limit.abs + limit.rel * std::fabs(value));
    return difference_within(actual, expected, limits);
}

std::string difference_within(const std::vector<float>& actual,
                              const std::vector<double>& expected,
                              const std::vector<double>& limits) {
    if (actual.size() != expected.size() || limits.size() != expected.size()) {
        return str(actual.size(), " elements, expected ", expected.size(), " with ", limits.size(),
                   " limits");
    }
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const double error = std::fabs(actual[i] - expected[i]);
        if (!(error <= limits[i])) {
            return str("element ", i, " of ", actual.size(), ": ", actual[i], ", expected ",
                       expected[i], ", error ", error, " above ", limits[i]);
        }
    }
    return "";
}

double relative_error(const std::vector<float>& actual, const std::vector<double>& expected) {
    double difference_squares = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double d = i < actual.size() ? actual[i] - expected[i] : expected[i];
        difference_squares += d * d;
        squares += expected[i] * expected[i];
    }
    const double error = std::sqrt(difference_squares) / std::sqrt(squares);
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

std::vector<double> to_double(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

}  // namespace ingot::test
