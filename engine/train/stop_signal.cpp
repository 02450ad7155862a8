#include "engine/train/stop_signal.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "engine/core/check.h"

namespace ingot {
namespace {

constexpr int kOneSignalMs = 100;

sigset_t stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

// Waits until one of the descriptors is readable, or the time is over (-1: no limit).
void wait_for(pollfd* wanted, nfds_t count, int timeout_ms) {
    while (::poll(wanted, count, timeout_ms) < 0 && errno == EINTR) {
    }
}

}  // namespace

void block_stop_signals() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignal::StopSignal()
    : signals_(stop_signals()),
      signal_fd_(::signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC)),
      end_fd_(::eventfd(0, EFD_CLOEXEC)) {
    ENSURE(signal_fd_.is_open() && end_fd_.is_open(), "run.signals",
           "signals cannot be watched: ", std::strerror(errno),
           "; raise the limit of open files (ulimit -n)");
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    watcher_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
    const std::uint64_t one = 1;
    // An eventfd of 0 takes a 1.
    [[maybe_unused]] const ssize_t written = ::write(end_fd_.get(), &one, sizeof(one));
    watcher_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopSignal::watch() {
    signalfd_siginfo info{};
    const auto take = [&] { return ::read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info); };
    const auto must_end = [&](int timeout_ms) {
        pollfd end = {end_fd_.get(), POLLIN, 0};
        wait_for(&end, 1, timeout_ms);
        return end.revents != 0;
    };
    do {
        pollfd both[] = {{end_fd_.get(), POLLIN, 0}, {signal_fd_.get(), POLLIN, 0}};
        wait_for(both, 2, -1);
        if (both[0].revents != 0) return;
    } while (!take());  // received() may have been first
    received_ = static_cast<int>(info.ssi_signo);
    if (must_end(kOneSignalMs)) return;
    while (take()) {
    }
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);  // the next one ends the process
    must_end(-1);
}

int StopSignal::received() {
    if (received_ != 0) return received_;
    // One that was sent to this thread alone does not reach the watcher.
    const timespec do_not_wait{0, 0};
    const int signal = sigtimedwait(&signals_, nullptr, &do_not_wait);
    if (signal > 0) {
        received_ = signal;
        pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    }
    return received_;
}

}  // namespace ingot
