// How often the host has waited for a Context's device: context.object<HostWaits>(). Tests count
// with it that a training step waits for nothing but the results it reads late.
#pragma once

#include <cstdint>

namespace ingot {

struct HostWaits {
    std::int64_t for_streams = 0;  // Stream::synchronize: for everything that was enqueued
    std::int64_t for_events = 0;   // Event::synchronize: for one point that was recorded
};

}  // namespace ingot
