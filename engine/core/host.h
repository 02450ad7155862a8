// Where and when: what names a process in logs, lock files and messages.
#pragma once

#include <string>

namespace ingot {

std::string host_name();  // "unknown host" when the system does not say
std::string utc_now();    // "2026-12-01T09:30:00.123Z"

}  // namespace ingot
