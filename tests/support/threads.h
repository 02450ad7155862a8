// Runs a part of a test on a given number of OpenMP threads, to show that results do not depend on
// it.
#pragma once

#include <omp.h>

namespace ingot::test {

class ThreadCount {
  public:
    explicit ThreadCount(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~ThreadCount() { omp_set_num_threads(before_); }
    ThreadCount(const ThreadCount&) = delete;
    ThreadCount& operator=(const ThreadCount&) = delete;

  private:
    int before_;
};

}  // namespace ingot::test
