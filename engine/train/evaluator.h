// Mean loss over a validation or test set: the sum of the losses of all positions divided by their
// number, each window once, the last partial batch included. Touches neither the training stream
// nor its data order.
#pragma once

#include "data/evaluation_batches.h"
#include "engine/train/param_store.h"
#include "model/decoder.h"

namespace ingot {

struct EvalResult {
    double loss = 0.0;        // nats per token
    std::int64_t tokens = 0;  // evaluated
};

class Evaluator {
  public:
    // The Decoder's activations are used: evaluate between steps. max_batches: micro-batches at
    // most, 0 = the whole set.
    Evaluator(Context& context, Decoder& decoder, ParamStore& store);

    EvalResult run(const TokenSet& set, std::int64_t max_batches);

    // (B * T) i32 on the device, free between evaluations: text is sampled with it.
    Tensor ids() const { return device_.tensor(0).slice(0, 1).view({numel_}); }

    // Planned device and pinned bytes.
    static ArenaPlan plan_device(std::int64_t B, std::int64_t T);
    static ArenaPlan plan_pinned(std::int64_t B, std::int64_t T);

  private:
    Context& context_;
    Decoder& decoder_;
    ParamStore& store_;
    std::int64_t numel_;  // B * T
    Arena device_;
    Arena pinned_;
};

}  // namespace ingot
