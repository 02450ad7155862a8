#include "engine/train/schedule.h"

#include <algorithm>
#include <cmath>

#include "engine/core/check.h"

namespace ingot {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

Schedule::Schedule(const TrainConfig& config, std::int64_t total_steps)
    : settings_(config.schedule), peak_(config.optimizer.lr), total_steps_(total_steps) {
    ENSURE(total_steps >= 1, "schedule.steps", "schedule: ", total_steps,
           " steps, needed is 1 or more");
    ENSURE(settings_.warmup_steps <= total_steps, "config.combination",
           "config: schedule.warmup_steps = ", settings_.warmup_steps, ", allowed is at most the ",
           total_steps, " steps of the run; warm up for fewer steps");
    const std::int64_t room = total_steps - peak_step();
    decay_steps_ = room;
    if (settings_.kind == TrainConfig::Schedule::Kind::wsd) {
        const double wanted = settings_.decay_fraction * static_cast<double>(total_steps);
        decay_steps_ =
            std::min<std::int64_t>(room, std::max<std::int64_t>(1, std::llround(wanted)));
    }
}

std::int64_t Schedule::peak_step() const {
    return std::max<std::int64_t>(settings_.warmup_steps, 1);
}

double Schedule::learning_rate(std::int64_t step) const {
    ENSURE(step >= 1 && step <= total_steps_, "schedule.steps", "schedule: step ", step,
           ", allowed 1..", total_steps_);
    const std::int64_t decay_begin = total_steps_ - decay_steps_;  // the last step at the peak
    if (step < peak_step()) {
        return peak_ * static_cast<double>(step) / static_cast<double>(settings_.warmup_steps);
    }
    using Kind = TrainConfig::Schedule::Kind;
    if (settings_.kind == Kind::constant || step <= decay_begin) return peak_;
    const double x = static_cast<double>(step - decay_begin) / static_cast<double>(decay_steps_);
    const double r = settings_.final_lr_ratio;
    // The last step is the product itself: 1 - (1 - r) rounds.
    if (step == total_steps_) return peak_ * r;
    if (settings_.kind == Kind::cosine)
        return peak_ * (r + (1 - r) * 0.5 * (1 + std::cos(kPi * x)));
    return peak_ * (1 - (1 - r) * x);
}

}  // namespace ingot
