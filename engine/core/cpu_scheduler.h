// The adversarial order of CPU streams: see engine/core/device.h. Internal to engine/core.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace ingot {

// How often an event was recorded by the host, and how far execution has come. Shared by the event
// and by the queued work that refers to it.
struct CpuEventState {
    std::uint64_t recorded = 0;
    std::uint64_t completed = 0;
};

class CpuScheduler {
  public:
    CpuScheduler(int num_streams, std::uint64_t seed) : queues_(num_streams), random_(seed) {}

    void push_work(int stream, std::function<void()> work);
    void push_record(int stream, std::shared_ptr<CpuEventState> event);
    void push_wait(int stream, std::shared_ptr<CpuEventState> event);

    // Runs work of any stream, one random runnable head at a time, until `done` holds. Throws
    // stream.deadlock when nothing is runnable before that.
    void run_until(const std::function<bool()>& done);
    bool is_empty(int stream) const { return queues_[stream].empty(); }

  private:
    struct Task {
        enum class Kind { work, record, wait } kind;
        std::function<void()> work;
        std::shared_ptr<CpuEventState> event;
        std::uint64_t generation = 0;  // the record that is meant
    };
    bool is_runnable(const Task& task) const;

    std::vector<std::deque<Task>> queues_;
    std::mt19937_64 random_;
};

}  // namespace ingot
