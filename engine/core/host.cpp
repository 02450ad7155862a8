#include "engine/core/host.h"

#include <ctime>
#include <fstream>
#include <unistd.h>

namespace ingot {
namespace {

// "Key: 123 kB" of a /proc file, in bytes; -1 when it is not there.
std::int64_t proc_bytes(const char* path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
    }
    return -1;
}

}  // namespace

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

std::int64_t available_memory_bytes() {
    return proc_bytes("/proc/meminfo", "MemAvailable");
}

std::int64_t anonymous_memory_bytes() {
    return proc_bytes("/proc/self/status", "RssAnon");
}

}  // namespace ingot
