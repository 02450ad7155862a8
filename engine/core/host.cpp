#include "engine/core/host.h"

#include <ctime>
#include <unistd.h>

namespace ingot {

std::string host_name() {
    char name[256] = "";
    return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

std::string utc_now() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::tm parts{};
    ::gmtime_r(&now.tv_sec, &parts);
    char text[40];
    const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    const std::string milliseconds = std::to_string(1000 + now.tv_nsec / 1000000);
    return std::string(text, length) + "." + milliseconds.substr(1) + "Z";
}

}  // namespace ingot
