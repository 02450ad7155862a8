#include "engine/train/stop_signal.h"

#include <ctime>
#include <pthread.h>

namespace ingot {

StopSignal::StopSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

StopSignal::~StopSignal() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopSignal::received() {
    if (received_ != 0) return received_;
    const timespec do_not_wait{0, 0};
    const int signal = sigtimedwait(&signals_, nullptr, &do_not_wait);
    if (signal > 0) {
        received_ = signal;
        pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);  // the next one ends the process
    }
    return received_;
}

}  // namespace ingot
