#include "engine/train/gpu_monitor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/core/check.h"

namespace ingot {
namespace {

std::string percent(std::int64_t part, std::int64_t whole) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f %%",
                  100.0 * static_cast<double>(part) / static_cast<double>(whole));
    return text;
}

}  // namespace

void GpuSummary::add(const GpuSample& sample) {
    ++num_samples_;
    if (sample.power_w) {
        const long watts = std::lround(*sample.power_w);
        ++by_watts_[static_cast<std::size_t>(std::clamp(watts, 0L, kMaxWatts - 1L))];
        ++num_power_;
    }
    if (sample.temperature_c) {
        highest_temperature_c_ =
            std::max(highest_temperature_c_.value_or(*sample.temperature_c), *sample.temperature_c);
    }
    if (!sample.clock_reasons) return;
    ++num_reasons_;
    num_throttled_ += is_throttled(*sample.clock_reasons) ? 1 : 0;
    for (std::size_t bit = 0; bit < by_reason_.size(); ++bit) {
        const std::uint64_t reason = *sample.clock_reasons & (std::uint64_t{1} << bit);
        if (is_throttled(reason)) ++by_reason_[bit];
    }
}

std::string GpuSummary::text() const {
    std::string text;
    const auto add = [&](const std::string& part) {
        text += (text.empty() ? "GPU: " : ", ") + part;
    };
    if (num_power_ > 0) {
        std::size_t watts = 0;
        std::int64_t below = by_watts_[0];  // samples of at most `watts`
        while (2 * below < num_power_)
            below += by_watts_[++watts];
        add(str("median power ", watts, " W"));
    }
    if (highest_temperature_c_) add(str("at most ", *highest_temperature_c_, " C"));
    if (num_reasons_ > 0) {
        std::string reasons;
        for (std::size_t bit = 0; bit < by_reason_.size(); ++bit) {
            if (by_reason_[bit] == 0) continue;
            reasons += str(reasons.empty() ? " (" : ", ",
                           clock_reason_words(std::uint64_t{1} << bit).front(), " ",
                           percent(by_reason_[bit], num_reasons_));
        }
        add(str("throttled ", percent(num_throttled_, num_reasons_), " of the time", reasons,
                reasons.empty() ? "" : ")"));
    }
    return text;
}

GpuMonitor::GpuMonitor(std::unique_ptr<NvmlDevice> device, std::chrono::milliseconds period)
    : device_(std::move(device)), period_(period) {
    take_sample();
    thread_ = std::thread([this] { loop(); });
}

GpuMonitor::~GpuMonitor() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        must_stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void GpuMonitor::take_sample() {
    const GpuSample sample = device_->sample();  // without the lock: it may take long
    const std::lock_guard<std::mutex> lock(mutex_);
    latest_ = sample;
    summary_.add(sample);
}

void GpuMonitor::loop() {
    for (;;) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (wake_.wait_for(lock, period_, [this] { return must_stop_; })) return;
        }
        take_sample();
    }
}

GpuSample GpuMonitor::latest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return latest_;
}

GpuSummary GpuMonitor::summary() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return summary_;
}

}  // namespace ingot
