// SIGINT and SIGTERM as a question asked between steps. While this object lives the signals are
// blocked in every thread made after it, so make it first; the second signal after the first was
// seen ends the process at once, as it would without us.
#pragma once

#include <csignal>

namespace ingot {

class StopSignal {
  public:
    StopSignal();
    ~StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    // The signal that has arrived (SIGINT, SIGTERM), or 0. Does not wait.
    int received();

  private:
    sigset_t signals_;
    sigset_t before_;
    int received_ = 0;
};

}  // namespace ingot
