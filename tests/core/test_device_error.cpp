// Goal: whoever cannot use a GPU is told what is wrong, with the numbers, and what to do.
// Method: facts in, whole messages out; processes from a management library made for the test.
#include <doctest/doctest.h>

#include "engine/core/device_error.h"
#include "tests/support/fake_nvml.h"

using namespace ingot;
using namespace ingot::test;

namespace {

void check_failure(const DeviceFailure& failure, const char* code, const char* text) {
    try {
        fail_unusable_device(failure);
        FAIL("fail_unusable_device returned");
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == code);
        CHECK(std::string(error.what()) == text);
    }
}

DeviceFailure failure_of(DeviceFailure::Kind kind, const char* reason, int driver) {
    DeviceFailure failure;
    failure.kind = kind;
    failure.reason = reason;
    failure.driver_version = driver;
    failure.runtime_version = 13000;
    return failure;
}

}  // namespace

TEST_CASE("device error: a driver too old is told with both versions") {
    check_failure(failure_of(DeviceFailure::Kind::insufficient_driver, "x", 12040),
                  "device.driver_too_old",
                  "train.device = cuda: the NVIDIA driver supports CUDA 12.4, this program runs on "
                  "CUDA 13.0; update the driver, build with the CUDA toolkit 12.4, or use "
                  "--train.device=cpu");
}

TEST_CASE("device error: no driver and no device are told apart") {
    check_failure(failure_of(DeviceFailure::Kind::insufficient_driver, "insufficient", 0),
                  "device.no_driver",
                  "train.device = cuda: no NVIDIA driver answers (insufficient); install one that "
                  "supports CUDA 13.0 or newer, load its kernel module (nvidia-smi shows the "
                  "devices when it works), or use --train.device=cpu");
    check_failure(failure_of(DeviceFailure::Kind::no_device, "no CUDA-capable device", 13000),
                  "device.none",
                  "train.device = cuda: no CUDA device is visible (no CUDA-capable device); check "
                  "CUDA_VISIBLE_DEVICES and nvidia-smi, or use --train.device=cpu");
}

TEST_CASE("device error: a busy device is named with its mode and its processes") {
    DeviceFailure failure = failure_of(DeviceFailure::Kind::busy, "busy or unavailable", 13000);
    failure.device_index = 1;
    failure.gpu = "NVIDIA H200";
    failure.compute_mode = "exclusive process";
    failure.processes = {{4711, "python3", std::int64_t{1} << 30}};
    check_failure(failure, "device.busy",
                  "CUDA device 1 (NVIDIA H200) takes no further process (busy or unavailable), its "
                  "compute mode is exclusive process, other processes on it: 4711 python3 1.00 GiB "
                  "(1073741824 bytes); wait for them or end them, choose another device with "
                  "CUDA_VISIBLE_DEVICES, or allow several with nvidia-smi -c DEFAULT");
    failure.memory = GpuMemory{150'754'820'096, 149'681'078'272, 1'073'741'824};
    check_failure(failure, "device.busy",
                  "CUDA device 1 (NVIDIA H200) takes no further process (busy or unavailable), its "
                  "compute mode is exclusive process, 149681078272 of 150754820096 bytes are free; "
                  "other processes on it: 4711 python3 1.00 GiB (1073741824 bytes); wait for them "
                  "or end them, choose another device with CUDA_VISIBLE_DEVICES, or allow several "
                  "with nvidia-smi -c DEFAULT");
    failure.compute_mode = "default";  // which nobody need change
    failure.processes.clear();
    check_failure(failure, "device.busy",
                  "CUDA device 1 (NVIDIA H200) takes no further process (busy or unavailable), its "
                  "compute mode is default, 149681078272 of 150754820096 bytes are free; no other "
                  "process on it is known; wait for them or end them, choose another device with "
                  "CUDA_VISIBLE_DEVICES, or look for the GPU's Xid in dmesg");
}

TEST_CASE("device error: a full device is named with its free and total bytes and its processes") {
    FakeNvml fake;
    fake.set("memory total", 150'754'820'096);
    fake.set("memory free", 1'048'576);
    fake.set("memory used", 150'753'771'520);
    fake.add_process(4194305, std::uint64_t{140} << 30);
    DeviceFailure failure = failure_of(DeviceFailure::Kind::full, "out of memory", 13000);
    failure.gpu = "NVIDIA H200";
    failure.compute_mode = "default";
    failure.memory = memory_of_gpu(FakeNvml::kPciBusId, FakeNvml::path());
    failure.processes = processes_on_gpu(FakeNvml::kPciBusId, FakeNvml::path());
    check_failure(failure, "device.full",
                  "CUDA device 0 (NVIDIA H200) has no memory left for another process (out of "
                  "memory), 1048576 of 150754820096 bytes are free; other processes on it: 4194305 "
                  "(unknown here) 140.00 GiB (150323855360 bytes); wait until there is room, end "
                  "those that are not needed, or choose another device with CUDA_VISIBLE_DEVICES");
    failure.memory = memory_of_gpu("0000:00:00.0", FakeNvml::path());
    CHECK_FALSE(failure.memory);
    failure.processes.clear();
    check_failure(failure, "device.full",
                  "CUDA device 0 (NVIDIA H200) has no memory left for another process (out of "
                  "memory), how much is free is not known (see nvidia-smi), no other process on it "
                  "is known; wait until there is room, end those that are not needed, or choose "
                  "another device with CUDA_VISIBLE_DEVICES");
}

TEST_CASE("device error: a driver whose services do not run, and what nobody foresaw") {
    check_failure(failure_of(DeviceFailure::Kind::not_ready, "system not yet initialized", 13000),
                  "device.not_ready",
                  "train.device = cuda: the driver is not ready (system not yet initialized); on "
                  "machines with NVSwitch start its service (systemctl start "
                  "nvidia-fabricmanager, of the driver's version), or use --train.device=cpu");
    check_failure(failure_of(DeviceFailure::Kind::other, "unknown error", 13010), "device.unusable",
                  "CUDA device 0 cannot be used: unknown error (the driver supports CUDA 13.1, "
                  "this program runs on CUDA 13.0); check nvidia-smi and dmesg, or use "
                  "--train.device=cpu");
}

TEST_CASE("device error: compute capability below 8.0 is refused with the card's name") {
    DeviceInfo info;
    info.name = "Tesla V100-SXM2-32GB";
    info.compute_major = 7;
    CHECK_THROWS_WITH_AS(require_supported(info),
                         "GPU Tesla V100-SXM2-32GB has compute capability 7.0, 8.0 is needed; use "
                         "an Ampere card or a newer one, or --train.device=cpu",
                         Error);
    info.compute_major = 8;
    CHECK_NOTHROW(require_supported(info));
    info.compute_major = 12;
    CHECK_NOTHROW(require_supported(info));
}

TEST_CASE("device error: what is free, and who has the rest") {
    FakeNvml fake;
    fake.add_process(4194305, 12345678);
    const auto processes = processes_on_gpu(FakeNvml::kPciBusId, FakeNvml::path());
    CHECK(describe_gpu_memory(100, 1000, processes) ==
          "100 of 1000 bytes are free; other processes on it: 4194305 (unknown here) 0.01 GiB "
          "(12345678 bytes)");
    CHECK(describe_gpu_memory(100, 1000, processes_on_gpu("0000:00:00.0", FakeNvml::path())) ==
          "100 of 1000 bytes are free; no other process on it is known");
    CHECK(processes_on_gpu(FakeNvml::kPciBusId, "libno_such_nvml.so.1").empty());
}
