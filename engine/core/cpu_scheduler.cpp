#include "engine/core/cpu_scheduler.h"

#include <utility>

#include "engine/core/check.h"

namespace ingot {

void CpuScheduler::push_work(int stream, std::function<void()> work) {
    queues_[stream].push_back({Task::Kind::work, std::move(work), nullptr, 0});
}

void CpuScheduler::push_record(int stream, std::shared_ptr<CpuEventState> event) {
    const std::uint64_t generation = ++event->recorded;
    queues_[stream].push_back({Task::Kind::record, nullptr, std::move(event), generation});
}

void CpuScheduler::push_wait(int stream, std::shared_ptr<CpuEventState> event) {
    const std::uint64_t generation = event->recorded;
    queues_[stream].push_back({Task::Kind::wait, nullptr, std::move(event), generation});
}

bool CpuScheduler::is_runnable(const Task& task) const {
    return task.kind != Task::Kind::wait || task.event->completed >= task.generation;
}

void CpuScheduler::run_until(const std::function<bool()>& done) {
    while (!done()) {
        std::vector<int> runnable;
        for (int i = 0; i < static_cast<int>(queues_.size()); ++i) {
            if (!queues_[i].empty() && is_runnable(queues_[i].front())) runnable.push_back(i);
        }
        ENSURE(!runnable.empty(), "stream.deadlock",
               "stream: all queued work waits for events that no queued work records");
        const int stream = runnable[random_() % runnable.size()];
        Task task = std::move(queues_[stream].front());
        queues_[stream].pop_front();
        if (task.kind == Task::Kind::work) task.work();
        if (task.kind == Task::Kind::record) task.event->completed = task.generation;
    }
}

}  // namespace ingot
