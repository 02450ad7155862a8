// SIGINT and SIGTERM as a question asked between steps. A thread of its own takes the first signal
// also in the middle of a step; from a moment later on another one ends the process at once, as it
// would without us. What arrives within that moment counts as one: some senders signal a process
// and its group.
//
// A signal to the process goes to any thread that does not block it, and ends the process there:
// the signals must be blocked before other threads are made, those of libraries included.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "engine/core/file.h"

namespace ingot {

// For the start of a program: blocks both signals in this thread, and so in those that it makes.
// They wait for the StopSignal.
void block_stop_signals();

// Blocks the signals itself, too, for programs with no threads yet.
class StopSignal {
  public:
    StopSignal();  // throws run.signals, and then blocks nothing
    ~StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    // The signal that has arrived (SIGINT, SIGTERM), or 0. Does not wait.
    int received();

  private:
    void watch();

    sigset_t signals_;
    sigset_t before_;
    std::atomic<int> received_{0};
    FileHandle signal_fd_;
    FileHandle end_fd_;  // readable: the watcher shall end
    std::thread watcher_;
};

}  // namespace ingot
