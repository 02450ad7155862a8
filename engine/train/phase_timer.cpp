#include "engine/train/phase_timer.h"

namespace ingot {

PhaseTimer::PhaseTimer(Context& context, int num_slots)
    : context_(context), slots_(static_cast<std::size_t>(num_slots)) {}

Event& PhaseTimer::next_event(Slot& slot, Phase phase) {
    slot.phases.push_back(phase);
    if (slot.events.size() < slot.phases.size()) slot.events.emplace_back(context_);
    return slot.events[slot.phases.size() - 1];
}

void PhaseTimer::begin_step(Stream stream, std::int64_t step) {
    current_ = static_cast<std::size_t>(step) % slots_.size();
    slots_[current_].phases.clear();
    stream.record(next_event(slots_[current_], Phase::wait));
}

void PhaseTimer::mark(Stream stream, Phase phase) {
    stream.record(next_event(slots_[current_], phase));
}

PhaseTimes PhaseTimer::read(std::int64_t step) {
    Slot& slot = slots_[static_cast<std::size_t>(step) % slots_.size()];
    const std::size_t count = slot.phases.size();
    slot.events[count - 1].synchronize();
    PhaseTimes times;
    for (std::size_t i = 1; i < count; ++i) {
        const double ms = Event::elapsed_ms(slot.events[i - 1], slot.events[i]);
        if (slot.phases[i] == Phase::forward) times.forward_ms += ms;
        if (slot.phases[i] == Phase::backward) times.backward_ms += ms;
        if (slot.phases[i] == Phase::optimizer) times.optimizer_ms += ms;
    }
    times.step_ms = Event::elapsed_ms(slot.events[0], slot.events[count - 1]);
    return times;
}

}  // namespace ingot
