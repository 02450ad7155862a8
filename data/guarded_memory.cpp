#include "data/guarded_memory.h"

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <ucontext.h>

#include "engine/core/check.h"

namespace ingot {
namespace {

struct Guard {
    std::uintptr_t begin;
    std::uintptr_t end;
    sigjmp_buf resume;
};

// A handler that ours was put in front of; a list, newest first, because others may install theirs
// between two installations of ours. Entries are never freed: the signal handler reads them.
struct PreviousHandler {
    struct sigaction action;
    const PreviousHandler* older;
};

// Both are read inside a signal handler: initial-exec storage is reached without an allocation.
[[gnu::tls_model("initial-exec")]] thread_local Guard* active_guard = nullptr;
[[gnu::tls_model("initial-exec")]] thread_local int chained_calls = 0;
std::atomic<const PreviousHandler*> previous_handlers{nullptr};

void default_action(int signal, const siginfo_t* info) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    // A fault is raised again when the instruction is; what kill() sent is not.
    if (info->si_code <= 0) raise(signal);
}

// The n-th nested call goes to the n-th oldest handler: a handler that was installed after ours and
// passes on to ours gets the signal once, not for ever.
void pass_on(int signal, siginfo_t* info, void* context) {
    const PreviousHandler* previous = previous_handlers.load(std::memory_order_acquire);
    for (int skip = chained_calls; skip > 0 && previous != nullptr; --skip)
        previous = previous->older;
    if (previous == nullptr || previous->action.sa_handler == SIG_DFL) {
        return default_action(signal, info);
    }
    if (previous->action.sa_handler == SIG_IGN) {
        if (info->si_code > 0) default_action(signal, info);  // the kernel ignores no fault either
        return;
    }
    ++chained_calls;
    if ((previous->action.sa_flags & SA_SIGINFO) != 0) {
        previous->action.sa_sigaction(signal, info, context);
    } else {
        previous->action.sa_handler(signal);
    }
    --chained_calls;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
    Guard* guard = active_guard;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (guard != nullptr && info->si_code > 0 && address >= guard->begin && address < guard->end) {
        // The jump leaves the handler without returning: what it blocks must be unblocked here.
        pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
        siglongjmp(guard->resume, 1);
    }
    pass_on(signal, info, context);
}

}  // namespace

void install_bus_error_guard() {
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    struct sigaction present {};
    ENSURE(sigaction(SIGBUS, nullptr, &present) == 0, "shard.io", "cannot read the SIGBUS handler");
    if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_bus_error) return;
    const auto* previous =
        new PreviousHandler{present, previous_handlers.load(std::memory_order_relaxed)};
    previous_handlers.store(previous, std::memory_order_release);
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    ENSURE(sigaction(SIGBUS, &ours, nullptr) == 0, "shard.io", "cannot set the SIGBUS handler");
}

bool read_guarded(const void* begin,
                  std::size_t size_bytes,
                  void (*read)(void* argument),
                  void* argument) {
    Guard guard;
    guard.begin = reinterpret_cast<std::uintptr_t>(begin);
    guard.end = guard.begin + size_bytes;
    if (sigsetjmp(guard.resume, 0) != 0) {  // 0: the signal mask is not saved, so no system call
        active_guard = nullptr;
        return false;
    }
    active_guard = &guard;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    read(argument);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    active_guard = nullptr;
    return true;
}

}  // namespace ingot
