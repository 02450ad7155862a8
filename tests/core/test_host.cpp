// Goal: a process can be named. Method: the system's own answers.
#include <regex>
#include <sys/utsname.h>

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
