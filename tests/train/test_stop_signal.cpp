// Goal: signals are watched or refused with the way out. Method: a process without descriptors
// left. What a signal does to a run: tests/e2e/test_stop.py.
#include <csignal>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "engine/core/check.h"
#include "engine/train/stop_signal.h"

using namespace ingot;

namespace {

bool is_blocked(int signal) {
    sigset_t mask;
    REQUIRE(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
    return sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("stop signal: without a descriptor it is refused with the fix, and nothing is blocked") {
    // UBSan reads a type that it meets for the first time through a pipe, which it could not open.
    CHECK_THROWS_AS(fail("test", ""), Error);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 0;  // descriptors that are open stay so
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_THROWS_WITH_AS(StopSignal{},
                         "signals cannot be watched: Too many open files; raise the limit of open "
                         "files (ulimit -n)",
                         Error);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_FALSE(is_blocked(SIGTERM));
    CHECK_FALSE(is_blocked(SIGINT));
}

TEST_CASE("stop signal: a signal is received once it is sent, and is blocked only meanwhile") {
    {
        StopSignal signals;
        CHECK(is_blocked(SIGTERM));
        CHECK(signals.received() == 0);
        REQUIRE(pthread_kill(pthread_self(), SIGTERM) == 0);
        CHECK(signals.received() == SIGTERM);
        CHECK(signals.received() == SIGTERM);
    }
    CHECK_FALSE(is_blocked(SIGTERM));
    CHECK_FALSE(is_blocked(SIGINT));
}
