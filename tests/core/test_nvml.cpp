// Goal: what the driver's management library says reaches the engine, what it does not say is
// absent, and its absence is no error. Method: a library made for the test (fake_nvml.cpp).
#include <unistd.h>

#include <doctest/doctest.h>

#include "engine/core/nvml.h"
#include "tests/support/fake_nvml.h"

using namespace ingot;
using namespace ingot::test;

namespace {

std::unique_ptr<NvmlDevice> open_fake() {
    std::string problem;
    auto device = NvmlDevice::open(FakeNvml::kPciBusId, &problem, FakeNvml::path());
    CHECK(problem == "");
    REQUIRE(device != nullptr);
    return device;
}

}  // namespace

TEST_CASE("nvml: a sample holds what the library says, in our units") {
    FakeNvml fake;
    fake.set("utilization", 97);
    fake.set("memory used", std::int64_t{100} << 30);
    fake.set("milliwatts", 643210);
    fake.set("temperature", 61);
    fake.set("sm clock", 1755);
    fake.set("memory clock", 3201);
    fake.set("reasons", 0x4);
    const GpuSample sample = open_fake()->sample();
    CHECK(sample.utilization_percent == 97.0);
    CHECK(sample.memory_used_bytes == std::int64_t{100} << 30);
    fake.set("memory total", 1000);
    fake.set("memory free", 10);
    const auto memory = open_fake()->memory();
    REQUIRE(memory);
    CHECK(memory->total_bytes == 1000);
    CHECK(memory->free_bytes == 10);
    CHECK(memory->used_bytes == std::int64_t{100} << 30);
    CHECK(sample.power_w == doctest::Approx(643.21));
    CHECK(sample.temperature_c == 61.0);
    CHECK(sample.sm_mhz == 1755.0);
    CHECK(sample.memory_mhz == 3201.0);
    CHECK(sample.clock_reasons == 0x4);
}

TEST_CASE("nvml: a value that the GPU does not report is absent, the others are there") {
    FakeNvml fake;
    fake.set("temperature", 40);
    const GpuSample sample = open_fake()->sample();
    CHECK_FALSE(sample.utilization_percent);
    CHECK_FALSE(sample.memory_used_bytes);
    CHECK_FALSE(open_fake()->memory());
    CHECK_FALSE(sample.power_w);
    CHECK(sample.temperature_c == 40.0);
    CHECK_FALSE(sample.sm_mhz);
    CHECK_FALSE(sample.memory_mhz);
    CHECK_FALSE(sample.clock_reasons);
}

TEST_CASE(
    "nvml: a missing library, one that refuses and an unknown slot are told with the reason") {
    FakeNvml fake;
    std::string problem;
    CHECK(NvmlDevice::open("0000:3B:00.0", &problem, "libno_such_nvml.so.1") == nullptr);
    CHECK(problem.find("libno_such_nvml.so.1") != std::string::npos);
    CHECK(NvmlDevice::open("0000:01:00.0", &problem, FakeNvml::path()) == nullptr);
    CHECK(problem.find("no GPU at 0000:01:00.0: Not Found") != std::string::npos);
    CHECK(fake.get("shutdown calls") == 1);  // what was initialized is closed
    fake.set("init fails", 9);
    CHECK(NvmlDevice::open("0000:3B:00.0", &problem, FakeNvml::path()) == nullptr);
    CHECK(problem.find("nvmlInit_v2: Driver Not Loaded") != std::string::npos);
    fake.set("error text missing", 1);
    CHECK(NvmlDevice::open("0000:3B:00.0", &problem, FakeNvml::path()) == nullptr);
    CHECK(problem.find("nvmlInit_v2: error 9") != std::string::npos);
    CHECK(fake.get("shutdown calls") == 1);
}

TEST_CASE("nvml: the library is closed with the device") {
    FakeNvml fake;
    { const auto device = open_fake(); }
    CHECK(fake.get("init calls") == 1);
    CHECK(fake.get("shutdown calls") == 1);
}

TEST_CASE("nvml: processes come with pid, name and bytes, however many there are") {
    FakeNvml fake;
    fake.add_process(static_cast<unsigned>(getppid()), 3ULL << 30);
    fake.add_process(4194305, ~0ULL);  // above the largest pid: nobody here
    for (unsigned i = 0; i < 200; ++i)
        fake.add_process(4194306 + i, 1);
    const std::vector<GpuProcess> processes = open_fake()->processes();
    REQUIRE(processes.size() == 202);
    CHECK(processes[0].pid == getppid());
    CHECK(processes[0].name != "");
    CHECK(processes[0].used_bytes == std::int64_t{3} << 30);
    CHECK(processes[1].pid == 4194305);
    CHECK(processes[1].name == "");
    CHECK_FALSE(processes[1].used_bytes);
    CHECK(processes[201].pid == 4194306 + 199);
}

TEST_CASE("nvml: a library that claims more processes than it lists is not believed") {
    for (const int status : {0, 7}) {
        FakeNvml fake;
        fake.set("processes claimed", 0xffffffffLL);
        fake.set("processes status", status);
        CHECK(open_fake()->processes().empty());
    }
}

TEST_CASE("nvml: the text names the other processes and leaves out this one") {
    CHECK(format_gpu_processes({}) == "");
    CHECK(format_gpu_processes({{getpid(), "self", 5}}) == "");
    CHECK(format_gpu_processes({{getpid(), "self", 5},
                                {4711, "python3", std::int64_t{3} << 29},
                                {4712, "", std::nullopt}}) ==
          "4711 python3 1.50 GiB (1610612736 bytes), 4712 (unknown here)");
}

TEST_CASE("nvml: reasons have words, and idle or chosen clocks are no throttling") {
    using Words = std::vector<std::string>;
    CHECK(clock_reason_words(0) == Words{});
    CHECK(clock_reason_words(0x1) == Words{"idle"});
    CHECK(clock_reason_words(0x44) == Words{"power cap", "thermal slowdown (hardware)"});
    CHECK(clock_reason_words(0x404) == Words{"power cap", "reason 1024"});
    for (const std::uint64_t harmless : {0x0, 0x1, 0x2, 0x100, 0x103})
        CHECK_FALSE(is_throttled(harmless));
    for (const std::uint64_t bit : {0x4, 0x8, 0x10, 0x20, 0x40, 0x80}) {
        CHECK(is_throttled(bit));
        CHECK(is_throttled(bit | 0x1));
    }
}
