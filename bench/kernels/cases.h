// The cases of all ops. bench_<op>.cpp defines add_<op>; cases.cpp calls them all.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.h"

namespace ingot::bench {

// The sizes that the cases of a device use: a micro-batch of GPT-2 124M that fits its memory and
// patience.
struct ModelSizes {
    Device device;
    std::int64_t B, T;  // sequences, positions
    std::int64_t C;     // channels
    std::int64_t num_heads;
    std::int64_t V, Vp;  // vocabulary, padded
    std::int64_t num_parameters;
    std::int64_t chunk;  // rows of logits of the LM head

    std::int64_t rows() const { return B * T; }
    std::int64_t head_size() const { return C / num_heads; }
};
ModelSizes sizes_of(Device device);

// What every element of a tensor costs to read or write.
inline double bytes_of(DType dtype, std::int64_t count) {
    return static_cast<double>(size_of(dtype) * count);
}

void add_adamw(std::vector<Case>& cases, const ModelSizes& m);
void add_attention(std::vector<Case>& cases, const ModelSizes& m);
void add_bias_gradient(std::vector<Case>& cases, const ModelSizes& m);
void add_cast(std::vector<Case>& cases, const ModelSizes& m);
void add_cross_entropy(std::vector<Case>& cases, const ModelSizes& m);
void add_embedding(std::vector<Case>& cases, const ModelSizes& m);
void add_gelu(std::vector<Case>& cases, const ModelSizes& m);
void add_global_norm(std::vector<Case>& cases, const ModelSizes& m);
void add_layernorm(std::vector<Case>& cases, const ModelSizes& m);
void add_lm_head(std::vector<Case>& cases, const ModelSizes& m);
void add_matmul(std::vector<Case>& cases, const ModelSizes& m);
void add_sum(std::vector<Case>& cases, const ModelSizes& m);

std::vector<Case> all_cases(Device device);

}  // namespace ingot::bench
