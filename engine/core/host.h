// Where and when, which names a process in logs, lock files and messages; and its memory.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

std::string host_name();  // "unknown host" when the system does not say
std::string utc_now();    // "2026-12-01T09:30:00.123Z"

// What programs can still take of this machine's memory without swapping (MemAvailable); -1 when
// the system does not say.
std::int64_t available_memory_bytes();
// Of this process, resident and of no file (RssAnon); -1 when the system does not say.
std::int64_t anonymous_memory_bytes();

}  // namespace ingot
