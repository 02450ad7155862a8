// Goal: the monitor keeps up without anybody waiting for it, and its summary is that of the
// samples. Method: a management library made for the test, and samples given by hand.
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "engine/train/gpu_monitor.h"
#include "tests/support/fake_nvml.h"

using namespace ingot;
using namespace ingot::test;

namespace {

GpuSample sample_of(double power_w, double temperature_c, std::uint64_t reasons) {
    GpuSample sample;
    sample.power_w = power_w;
    sample.temperature_c = temperature_c;
    sample.clock_reasons = reasons;
    return sample;
}

}  // namespace

TEST_CASE("gpu monitor: there is a sample at once, and a new one after a while") {
    FakeNvml fake;
    fake.set("milliwatts", 100000);
    std::string problem;
    GpuMonitor monitor(NvmlDevice::open(FakeNvml::kPciBusId, &problem, FakeNvml::path()),
                       std::chrono::milliseconds(5));
    CHECK(monitor.latest().power_w == 100.0);
    CHECK(monitor.summary().num_samples() >= 1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (monitor.summary().num_samples() < 5 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(monitor.summary().num_samples() >= 5);
    CHECK(monitor.summary().text() == "GPU: median power 100 W");
}

TEST_CASE("gpu monitor: its end does not wait for the next sample") {
    FakeNvml fake;
    std::string problem;
    const auto begin = std::chrono::steady_clock::now();
    {
        const GpuMonitor monitor(NvmlDevice::open(FakeNvml::kPciBusId, &problem, FakeNvml::path()),
                                 std::chrono::hours(1));
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    CHECK(fake.get("shutdown calls") == 1);
}

TEST_CASE("gpu summary: median power, highest temperature, share of each reason") {
    GpuSummary summary;
    CHECK(summary.text() == "");
    summary.add(sample_of(700.2, 55, 0x4));
    summary.add(sample_of(90, 61, 0x1));
    summary.add(sample_of(650, 60, 0x44));
    summary.add(sample_of(640.4, 58, 0));
    summary.add(sample_of(660, 57, 0x2));
    CHECK(summary.text() ==
          "GPU: median power 650 W, at most 61 C, throttled 40.0 % of the time (power cap 40.0 %, "
          "thermal slowdown (hardware) 20.0 %)");
}

TEST_CASE("gpu summary: what was never reported is not mentioned, odd values do no harm") {
    GpuSummary summary;
    summary.add(GpuSample{});
    CHECK(summary.text() == "");
    GpuSample odd;
    odd.power_w = 1e9;
    summary.add(odd);
    CHECK(summary.text() == "GPU: median power 4095 W");
    GpuSample clocks;
    clocks.clock_reasons = 0;
    summary.add(clocks);
    CHECK(summary.text() == "GPU: median power 4095 W, throttled 0.0 % of the time");
    clocks.clock_reasons = 0x4;
    summary.add(clocks);  // half of those that report reasons
    CHECK(summary.text() ==
          "GPU: median power 4095 W, throttled 50.0 % of the time (power cap 50.0 %)");
}
