// Goal: a bus error of a guarded read comes back as `false`; every other bus error does what it did
// before. Method: a mapping behind the end of its file raises SIGBUS; child processes, because some
// of them die of it.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "data/guarded_memory.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

// 3 pages mapped, of a file with 1 page: reading pages 1 and 2 raises SIGBUS.
class ShortMapping {
  public:
    ShortMapping() {
        const int fd = open((folder_ / "short").c_str(), O_RDWR | O_CREAT, 0600);
        REQUIRE(ftruncate(fd, page()) == 0);
        void* data = mmap(nullptr, 3 * page(), PROT_READ, MAP_SHARED, fd, 0);
        REQUIRE(data != MAP_FAILED);
        data_ = static_cast<const volatile char*>(data);
        close(fd);
    }
    ~ShortMapping() { munmap(const_cast<char*>(data_), 3 * page()); }

    static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
    const volatile char* at(std::size_t index) const { return data_ + index * page(); }

  private:
    TempFolder folder_;
    const volatile char* data_ = nullptr;
};

void load(void* address) {
    const volatile char* at = static_cast<const volatile char*>(address);
    (void)*at;
}

bool guarded_load(const volatile char* from, const volatile char* at) {
    return read_guarded(const_cast<const char*>(from), ShortMapping::page(), load,
                        const_cast<char*>(at));
}

void exit_with_42(int) {
    _exit(42);
}

void exit_with_43(int, siginfo_t* info, void*) {
    _exit(info->si_addr == nullptr ? 1 : 43);
}

// Wait status of a child that runs body(); it exits with 0 when body returns.
template <class Body>
int status_of_child(Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}

void set_handler(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

TEST_CASE("guarded memory: a bus error inside the range returns false, again and again") {
    install_bus_error_guard();
    const ShortMapping mapping;
    for (int i = 0; i < 1000; ++i) {
        CHECK(guarded_load(mapping.at(0), mapping.at(0)));
        CHECK_FALSE(guarded_load(mapping.at(1), mapping.at(1)));
    }
}

TEST_CASE("guarded memory: a bus error outside the range goes to the handler of before") {
    const ShortMapping mapping;
    const int plain = status_of_child([&] {
        set_handler(exit_with_42);
        install_bus_error_guard();
        (void)*mapping.at(1);
    });
    CHECK(WIFEXITED(plain));
    CHECK(WEXITSTATUS(plain) == 42);

    const int other_range = status_of_child([&] {
        struct sigaction action {};
        action.sa_sigaction = exit_with_43;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGBUS, &action, nullptr);
        install_bus_error_guard();
        guarded_load(mapping.at(1), mapping.at(2));
    });
    CHECK(WIFEXITED(other_range));
    CHECK(WEXITSTATUS(other_range) == 43);
}

TEST_CASE("guarded memory: with no handler before, the process dies of SIGBUS as it would have") {
    const ShortMapping mapping;
    for (const auto handler : {SIG_DFL, SIG_IGN}) {
        const int fault = status_of_child([&] {
            set_handler(handler);
            install_bus_error_guard();
            (void)*mapping.at(1);
        });
        CHECK(WIFSIGNALED(fault));
        CHECK(WTERMSIG(fault) == SIGBUS);
    }
    const int sent = status_of_child([] {
        set_handler(SIG_DFL);
        install_bus_error_guard();
        kill(getpid(), SIGBUS);
        sleep(10);
    });
    CHECK(WIFSIGNALED(sent));
    const int ignored = status_of_child([] {
        set_handler(SIG_IGN);
        install_bus_error_guard();
        kill(getpid(), SIGBUS);
    });
    CHECK(WIFEXITED(ignored));
    CHECK(WEXITSTATUS(ignored) == 0);
}

namespace {

struct sigaction action_before_passing_on;

void pass_on_to_the_guard(int signal, siginfo_t* info, void* context) {
    action_before_passing_on.sa_sigaction(signal, info, context);
}

}  // namespace

TEST_CASE(
    "guarded memory: a handler installed later that passes on ends in the oldest, not in a loop") {
    const ShortMapping mapping;
    const int status = status_of_child([&] {
        set_handler(exit_with_42);
        install_bus_error_guard();
        struct sigaction later {};
        later.sa_sigaction = pass_on_to_the_guard;
        later.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGBUS, &later, &action_before_passing_on);
        if (guarded_load(mapping.at(1), mapping.at(1))) _exit(1);  // still guarded, through it
        install_bus_error_guard();                                 // in front of it again
        if (guarded_load(mapping.at(1), mapping.at(1))) _exit(2);
        alarm(20);
        (void)*mapping.at(1);
    });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
}
