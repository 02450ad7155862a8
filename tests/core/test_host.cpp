// Goal: a process can be named, and its memory counted. Method: the system's own answers.
#include <regex>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <vector>

#include <doctest/doctest.h>

#include "engine/core/host.h"

TEST_CASE("host: its name is the system's, the time is UTC with milliseconds") {
    utsname system{};
    REQUIRE(uname(&system) == 0);
    CHECK(ingot::host_name() == system.nodename);
    CHECK(std::regex_match(ingot::utc_now(),
                           std::regex("2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:"
                                      "[0-6][0-9]\\.[0-9]{3}Z")));
}

TEST_CASE("host: memory that programs can take is within what it has") {
    struct sysinfo system {};
    REQUIRE(sysinfo(&system) == 0);
    const auto total = static_cast<std::int64_t>(system.totalram) * system.mem_unit;
    CHECK(ingot::available_memory_bytes() > total / 100);
    CHECK(ingot::available_memory_bytes() < total);
}

TEST_CASE("host: memory of this process grows by what it writes to") {
    constexpr std::int64_t kBytes = 64 << 20;
    const std::int64_t before = ingot::anonymous_memory_bytes();
    CHECK(before > 0);
    const std::vector<char> written(kBytes, 1);
    const std::int64_t grown = ingot::anonymous_memory_bytes() - before;
    CHECK(written.back() == 1);
    CHECK(grown > kBytes - (1 << 20));
    CHECK(grown < kBytes + (16 << 20));
}
