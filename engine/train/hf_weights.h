// Weights in Hugging Face's form: a folder with config.json, model.safetensors (or an index with
// several files) and the tokenizer's files, in the layout of transformers.
//
// Import takes the names with or without the prefix "transformer."; the causal-mask buffers that
// old files carry (h.N.attn.bias, h.N.attn.masked_bias) are skipped; a copied lm_head.weight must
// equal the token embedding. Everything else must match the parameter table by name and shape.
// Export leaves out vocabulary padding and writes each tensor once, in the layout of its family.
// Errors: hf.missing_tensor, hf.unknown_tensor, hf.shape, hf.untied_head, hf.tokenizer,
// safetensors.*, file.*.
#pragma once

#include <string>

#include "engine/train/param_store.h"
#include "engine/train/safetensors.h"

namespace ingot {

// Reads every parameter of the store's table, tensor by tensor.
void import_hf_weights(const std::string& folder, ParamStore& store);

struct HfExport {
    std::string folder = {};            // made when it is missing
    DType dtype = DType::f32;           // of the tensors
    std::string tokenizer_folder = {};  // its tokenizer files are copied; "" = none
    std::int64_t eos_id = -1;           // -1 = unknown
};
void export_hf(const ParamStore& store, const DecoderConfig& config, const HfExport& options);

// A weights folder (a checkpoint of ours, or one of Hugging Face) rewritten with another dtype, one
// tensor at a time; eos_id is the source's.
void convert_hf_folder(const std::string& source, HfExport options);

// Host memory that import and export use for a moment: a piece of a tensor, or a transposed tensor
// in both layouts.
std::int64_t hf_staging_bytes(const ParamTable& table);

// Tensors between the two layouts: ours is (rows, columns) row-major, a transposed one in the file
// is (columns, stored rows). `ours` has spec.numel() values, padded rows 0; `theirs`
// stored_numel().
void to_hf_layout(const ParamSpec& spec, const float* ours, float* theirs);
void from_hf_layout(const ParamSpec& spec, const float* theirs, float* ours);

}  // namespace ingot
