// Floating-point work of a model, for MFU and for the plan.
#pragma once

#include "model/param_table.h"

namespace ingot {

// FLOPs of one token's forward and backward pass: 6 N + 12 L C T (Chowdhery et al., "PaLM",
// arXiv 2204.02311, appendix B), N = parameters without padding, attention counted in full (not
// halved for causality). Recomputation is not counted: MFU measures useful work.
double train_flops_per_token(const DecoderConfig& config,
                             std::int64_t num_parameters,
                             std::int64_t T);

}  // namespace ingot
