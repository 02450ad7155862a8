// The learning rate of a step: a pure function of the step number s = 1 .. S, with W warm-up steps,
// peak P = optimizer.lr, final ratio r, and f = max(W, 1), the first step that has the peak.
//
//   warm-up   s <= W         P s / W
//   constant  s > W          P
//   linear    s > W          P (1 - (1 - r) x)                    x = (s - f) / (S - f)
//   cosine    s > W          P (r + (1 - r) (1 + cos(pi x)) / 2)
//   wsd       W < s <= S-D   P
//             s > S-D        P (1 - (1 - r) (s - (S - D)) / D)
// The end points are exact: step 1 has P / W (P without warm-up), step f has P, step S has r P for
// linear, cosine and wsd. Where S = f there is no room to decay and step S has P.
// D = round(decay_fraction S), at least 1 and at most S - f.
// Errors: schedule.steps, config.combination.
#pragma once

#include <cstdint>

#include "engine/train/config.h"

namespace ingot {

class Schedule {
  public:
    // total_steps >= 1; schedule.warmup_steps <= total_steps.
    Schedule(const TrainConfig& config, std::int64_t total_steps);

    double learning_rate(std::int64_t step) const;  // 1 <= step <= total_steps
    std::int64_t total_steps() const { return total_steps_; }
    std::int64_t decay_steps() const { return decay_steps_; }  // wsd: D, else S - f

  private:
    std::int64_t peak_step() const;  // f

    TrainConfig::Schedule settings_;
    double peak_;
    std::int64_t total_steps_;
    std::int64_t decay_steps_;
};

}  // namespace ingot
