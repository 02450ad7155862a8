// The one table of parameters. Allocation, initialization, weight decay, sharding, checkpoint,
// import and export all iterate it; nothing identifies a tensor by a number.
//
// Parameters live in flat buffers, one per group: 0 = embedding (wte, wpe), 1..L = blocks, L+1 =
// final norm. Inside a group the tensors that get weight decay come first, so decay is two ranges
// of the flat buffer; every tensor starts at a multiple of kAlignElements; the space between
// tensors holds zeros, has zero gradients and is never stored in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "model/decoder_config.h"

namespace ingot {

enum class HfLayout {
    same,        // our rows are theirs
    transposed,  // ours (OC, C), theirs (C, OC): GPT-2's Conv1D weights
};

enum class Init { zeros, ones, normal };

struct ParamSpec {
    std::string name;     // "h3.qkvw"
    std::string hf_name;  // "transformer.h.3.attn.c_attn.weight"
    HfLayout hf_layout = HfLayout::same;
    std::vector<std::int64_t> shape;  // (rows, columns) or (columns)
    std::int64_t stored_rows = 0;     // rows without vocabulary padding; what files hold
    Init init = Init::zeros;
    float init_std = 0.0F;
    bool decay = false;  // weight decay: parameters with 2 or more dimensions
    int group = 0;
    std::int64_t offset = 0;  // elements from the start of the group's flat buffer

    std::int64_t numel() const;
    std::int64_t stored_numel() const;           // without padded rows
    std::vector<std::int64_t> hf_shape() const;  // as files hold it
};

struct ParamGroup {
    std::string name;              // "embedding", "h3", "final_norm"
    std::int64_t numel = 0;        // of the flat buffer, a multiple of kAlignElements
    std::int64_t decay_numel = 0;  // [0, decay_numel) gets weight decay
    std::vector<int> params;       // indices into ParamTable::params, by offset
};

struct ParamTable {
    std::vector<ParamSpec> params;
    std::vector<ParamGroup> groups;

    static constexpr std::int64_t kAlignElements = 128;

    std::int64_t num_parameters() const;  // what a user counts: without any padding
    const ParamSpec& find(const std::string& name) const;  // throws model.param
};

ParamTable make_gpt2_param_table(const DecoderConfig& config);

// The part of a group's flat buffer that holds `spec`, with its shape.
Tensor view_param(Tensor flat, const ParamSpec& spec);
ConstTensor view_param(ConstTensor flat, const ParamSpec& spec);

}  // namespace ingot
