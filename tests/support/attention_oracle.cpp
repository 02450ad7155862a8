#include "tests/support/attention_oracle.h"

#include <algorithm>

namespace ingot::test {
namespace {

// One query row: everything that depends on it is added to the result.
void oracle_row(AttentionOracle* result,
                const std::vector<double>& qkv,
                const std::vector<double>& dout,
                AttentionSize s,
                double scale,
                std::int64_t b,
                std::int64_t h,
                std::int64_t i) {
    const std::int64_t kv = h / (s.NH / s.NKV);
    const auto at = [&](std::int64_t t, std::int64_t slot) {
        return static_cast<std::size_t>((b * s.T + t) * s.row() + slot * s.HS);
    };
    const auto dot = [&](const std::vector<double>& x, std::size_t p, const std::vector<double>& y,
                         std::size_t q) {
        double sum = 0.0;
        for (std::size_t d = 0; d < static_cast<std::size_t>(s.HS); ++d)
            sum += x[p + d] * y[q + d];
        return sum;
    };
    const auto add = [&](std::vector<double>* x, std::size_t p, double factor,
                         const std::vector<double>& y, std::size_t q) {
        for (std::size_t d = 0; d < static_cast<std::size_t>(s.HS); ++d)
            (*x)[p + d] += factor * y[q + d];
    };
    std::vector<double> p;
    for (std::int64_t j = 0; j <= i; ++j)
        p.push_back(scale * dot(qkv, at(i, h), qkv, at(j, s.NH + kv)));
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    for (const double score : p)
        sum += std::exp(score - max);
    const double lse = max + std::log(sum);
    result->lse[static_cast<std::size_t>((b * s.NH + h) * s.T + i)] = lse;
    const std::size_t row = static_cast<std::size_t>((b * s.T + i) * s.C() + h * s.HS);
    double D = 0.0;
    for (std::int64_t j = 0; j <= i; ++j) {
        double& weight = p[static_cast<std::size_t>(j)];
        weight = std::exp(weight - lse);
        add(&result->out, row, weight, qkv, at(j, s.NH + s.NKV + kv));
        D += weight * dot(dout, row, qkv, at(j, s.NH + s.NKV + kv));
    }
    for (std::int64_t j = 0; j <= i; ++j) {
        const double weight = p[static_cast<std::size_t>(j)];
        const double dp = dot(dout, row, qkv, at(j, s.NH + s.NKV + kv));
        const double ds = scale * weight * (dp - D);
        add(&result->dqkv, at(i, h), ds, qkv, at(j, s.NH + kv));
        add(&result->dqkv, at(j, s.NH + kv), ds, qkv, at(i, h));
        add(&result->dqkv, at(j, s.NH + s.NKV + kv), weight, dout, row);
    }
}

}  // namespace

AttentionOracle attention_oracle(const std::vector<double>& qkv,
                                 const std::vector<double>& dout,
                                 AttentionSize s,
                                 double scale) {
    AttentionOracle result{std::vector<double>(dout.size()),
                           std::vector<double>(static_cast<std::size_t>(s.B * s.NH * s.T)),
                           std::vector<double>(qkv.size())};
    for (std::int64_t b = 0; b < s.B; ++b) {
        for (std::int64_t h = 0; h < s.NH; ++h) {
            for (std::int64_t i = 0; i < s.T; ++i)
                oracle_row(&result, qkv, dout, s, scale, b, h, i);
        }
    }
    return result;
}

}  // namespace ingot::test
