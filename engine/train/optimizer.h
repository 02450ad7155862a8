// One optimizer step on the parameters of this rank: global norm, clipping, AdamW.
//
// Everything that changes from step to step lives in a small device tensor
// (kernels/step_scalars.h), so a step has no host-dependent launch. The host writes it through a
// ring of pinned slots and reads results back through another; result(step) waits for that step
// only, so the trainer can read with a lag of one step and never stall the device. step() does not
// wait: the step that used its slot before must be known to be done.
//
// A step whose loss or gradient is not finite changes nothing: AdamW looks at the flag on the
// device. The caller counts it (count_skipped) before the next step, so that the bias correction
// counts updates, as t of Kingma and Ba's algorithm 1 does. Errors: optimizer.no_targets,
// optimizer.pending_slot.
#pragma once

#include <deque>

#include "engine/core/arena.h"
#include "engine/train/param_store.h"

namespace ingot {

struct OptimizerOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double grad_clip = 1.0;  // 0 = off
};

struct StepResult {
    double loss = 0.0;       // mean over the valid targets of the global batch, nats
    double grad_norm = 0.0;  // of the mean gradient, before clipping
    bool is_finite = true;   // false: the step changed nothing
};

struct OptimizerPlan {
    ArenaPlan arena{"optimizer scalars"};
    ArenaPlan pinned{"pinned scalars"};
    int scalars = -1, squares = -1, loss_sum = -1, scratch = -1;
    int pinned_inputs = -1, pinned_results = -1;
};
OptimizerPlan plan_optimizer(const ParamTable& table, Device device);

// By how many steps a trainer reads results late: on a device that works beside the host by one.
constexpr std::int64_t result_lag(Device device) {
    return device == Device::cuda ? 1 : 0;
}

class Optimizer {
  public:
    // `store` outlives the optimizer.
    Optimizer(Context& context, ParamStore& store, const OptimizerOptions& options);

    // (1) f32: the micro-steps of a step add up their losses here.
    Tensor loss_sum() const { return arena_.tensor(plan_.loss_sum); }

    // Updates the parameters from the accumulated gradients. `step` counts from 1; steps are taken
    // in order. valid_tokens: targets that count in the global batch.
    // The result of step - kSlots, or of a later step, must have been read.
    void step(Stream stream, std::int64_t step, double lr, std::int64_t valid_tokens);

    // The result of one of the last kSlots steps; waits until the device has done it.
    StepResult result(std::int64_t step) const;

    // The last result said that its step changed nothing.
    void count_skipped() { ++num_skipped_; }
    std::int64_t num_skipped() const { return num_skipped_; }

    static constexpr int kSlots = 4;

  private:
    void update_group(Stream stream, int group);

    ParamStore& store_;
    OptimizerOptions options_;
    OptimizerPlan plan_;
    Arena arena_;
    Arena pinned_;
    std::deque<Event> done_;                  // one a slot
    std::int64_t valid_tokens_[kSlots] = {};  // of the step in the slot
    std::int64_t num_skipped_ = 0;
};

}  // namespace ingot
