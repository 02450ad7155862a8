// Text from a model: temperature, top-k, greedy at temperature 0.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/train/param_store.h"
#include "model/decoder.h"

namespace ingot {

struct SampleOptions {
    double temperature = 0.8;  // >= 0; 0 = greedy
    std::int64_t top_k = 50;   // 0, or at least V: no cut
};

// Draws a token from logits of V entries with one uniform number in [0, 1). At temperature 0, and
// wherever logits tie in the cut to top_k, the lower id wins. Accumulates in double. Throws
// sample.temperature for a negative or non-finite temperature, sample.logits when no logit is
// finite.
std::int64_t sample_token(const std::vector<float>& logits,
                          const SampleOptions& options,
                          double uniform);

struct TextRequest {
    std::vector<std::int32_t> prompt;  // at least one token
    std::int64_t num_tokens = 100;     // to draw, at most; stops at stop_id
    std::int64_t stop_id = -1;         // -1 = none
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;  // which sample of the run, e.g. the step
    SampleOptions options;
};

// `window` is device memory for at least options().T ids (i32) of the Decoder. Returns the drawn
// tokens; `on_token` sees each as it comes. Runs the Decoder over the last context tokens
// for every token; uses its activations, so it belongs between steps. Leaves parameters and
// training data alone.
std::vector<std::int32_t> generate(Context& context,
                                   Decoder& decoder,
                                   ParamStore& store,
                                   Tensor window,
                                   const TextRequest& request,
                                   const std::function<void(std::int32_t)>& on_token);

}  // namespace ingot
