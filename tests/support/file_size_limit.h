// Stands for a full disk: while it lives, no file of this process grows past a size.
#pragma once

#include <csignal>
#include <sys/resource.h>

#include "engine/core/check.h"

namespace ingot::test {

class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t limit_bytes) {
        ENSURE(::getrlimit(RLIMIT_FSIZE, &before_) == 0, "test.limit", "getrlimit failed");
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{limit_bytes, before_.rlim_max};
        ENSURE(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "test.limit", "setrlimit failed");
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    rlimit before_{};
    void (*handler_)(int) = nullptr;
};

}  // namespace ingot::test
