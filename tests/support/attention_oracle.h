// Causal attention and its gradients in float64, one whole row of scores at a time: what every
// implementation is compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace ingot::test {

struct AttentionSize {
    std::int64_t B, T;
    int NH, NKV, HS;

    std::int64_t row() const { return (NH + 2 * NKV) * std::int64_t{HS}; }
    std::int64_t C() const { return std::int64_t{NH} * HS; }
    std::int64_t work() const { return B * T * T * C(); }
    float scale() const { return 1.0F / std::sqrt(static_cast<float>(HS)); }
    AttentionShape attention(DType dtype) const { return {B, T, NH, NKV, HS, dtype}; }
};

struct AttentionOracle {
    std::vector<double> out, lse, dqkv;
};

// qkv: (B, T, row), dout: (B, T, C), as in kernels/attention.h.
AttentionOracle attention_oracle(const std::vector<double>& qkv,
                                 const std::vector<double>& dout,
                                 AttentionSize s,
                                 double scale);

}  // namespace ingot::test
