// Where the time of a step goes, measured on the device's own timeline by events and read with a
// lag, so that measuring does not stall anything.
#pragma once

#include <deque>

#include "engine/core/device.h"

namespace ingot {

// The LM head, the loss and their gradients are one op; its time belongs to backward.
struct PhaseTimes {
    double forward_ms = 0.0;
    double backward_ms = 0.0;
    double optimizer_ms = 0.0;
    double step_ms = 0.0;  // from begin_step() to the end of the optimizer, waits for data included
};

class PhaseTimer {
  public:
    enum class Phase { wait, forward, backward, optimizer };

    // Keeps the last `num_slots` steps.
    PhaseTimer(Context& context, int num_slots);

    void begin_step(Stream stream, std::int64_t step);
    // The work enqueued since the mark before belongs to `phase`.
    void mark(Stream stream, Phase phase);
    // Of one of the last num_slots steps; waits until the device has done it.
    PhaseTimes read(std::int64_t step);

  private:
    struct Slot {
        std::deque<Event> events;  // grows to the number of marks of a step, then is reused
        std::vector<Phase> phases;
    };
    Event& next_event(Slot& slot, Phase phase);

    Context& context_;
    std::vector<Slot> slots_;
    std::size_t current_ = 0;
};

}  // namespace ingot
