// Samples one GPU in a thread of its own: asking takes milliseconds, which the thread that feeds
// the GPU does not have. A step record takes the latest sample; the end of a run takes the summary.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/core/nvml.h"

namespace ingot {

// Of all samples of a run, in constant memory.
class GpuSummary {
  public:
    void add(const GpuSample& sample);
    std::int64_t num_samples() const { return num_samples_; }
    // "GPU: median power 643 W, at most 61 C, throttled 34.0 % of the time (power cap 34.0 %)"; ""
    // when nothing was reported.
    std::string text() const;

  private:
    static constexpr int kMaxWatts = 4096;

    std::int64_t num_samples_ = 0;
    std::int64_t num_power_ = 0, num_reasons_ = 0, num_throttled_ = 0;
    std::array<std::int64_t, kMaxWatts> by_watts_{};
    std::array<std::int64_t, 64> by_reason_{};  // of the reasons that throttle, by bit
    std::optional<double> highest_temperature_c_;
};

class GpuMonitor {
  public:
    explicit GpuMonitor(std::unique_ptr<NvmlDevice> device,
                        std::chrono::milliseconds period = std::chrono::milliseconds(200));
    ~GpuMonitor();
    GpuMonitor(const GpuMonitor&) = delete;
    GpuMonitor& operator=(const GpuMonitor&) = delete;

    // The first sample is taken by the constructor, so there always is one.
    GpuSample latest() const;
    GpuSummary summary() const;

  private:
    void take_sample();
    void loop();

    std::unique_ptr<NvmlDevice> device_;
    std::chrono::milliseconds period_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    GpuSample latest_;
    GpuSummary summary_;
    bool must_stop_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace ingot
