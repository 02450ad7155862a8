// Goal: CPU streams order work as CUDA streams do, and adversarial mode finds a missing wait.
// Method: two streams that hand a value over, many seeds.
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "engine/core/device.h"
#include "tests/support/temp_folder.h"

using namespace ingot;

namespace {

// One stream writes, the other reads; returns what was read.
int hand_over(std::uint64_t seed, bool with_wait) {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = seed});
    const Stream producer = context->compute_stream();
    const Stream consumer = context->comm_stream();
    Event produced(*context);
    int value = 0;
    int seen = -1;
    producer.run([&value] { value = 42; });
    producer.record(produced);
    if (with_wait) consumer.wait(produced);
    consumer.run([&value, &seen] { seen = value; });
    context->synchronize();
    return seen;
}

}  // namespace

TEST_CASE("stream: a missing wait is found by some adversarial order, a wait satisfies all") {
    int missed = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        CHECK(hand_over(seed, true) == 42);
        missed += hand_over(seed, false) == 42 ? 0 : 1;
    }
    CHECK(missed > 20);
    CHECK(missed < 80);
}

TEST_CASE("stream: adversarial work does not run before somebody synchronizes") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 1});
    int runs = 0;
    context->compute_stream().run([&runs] { ++runs; });
    CHECK(runs == 0);
    context->compute_stream().synchronize();
    CHECK(runs == 1);
}

TEST_CASE("stream: work of one stream keeps its order") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = seed});
        std::vector<int> order;
        for (int i = 0; i < 5; ++i) {
            context->compute_stream().run([&order, i] { order.push_back(i); });
            context->comm_stream().run([&order, i] { order.push_back(10 + i); });
        }
        context->synchronize();
        int next[2] = {0, 10};
        for (const int i : order)
            CHECK(next[i / 10]++ == i);
    }
}

TEST_CASE("stream: a wait refers to the record before it, not to later ones") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 3});
    Event event(*context);
    const Stream a = context->compute_stream();
    const Stream b = context->comm_stream();
    int order = 0;
    a.record(event);
    b.wait(event);
    Event back(*context);
    b.run([&order] { order = 1; });
    b.record(back);
    a.wait(back);
    a.run([&order] { CHECK(order == 1); });
    a.record(event);
    context->synchronize();
    CHECK(event.is_complete());
}

TEST_CASE("stream: an event that nobody records is complete, as in CUDA") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 1});
    const Event event(*context);
    CHECK(event.is_complete());
    context->comm_stream().wait(event);
    context->synchronize();
}

TEST_CASE("buffer: a view past the end is refused with both numbers") {
    const auto context = Context::make_cpu();
    const Buffer buffer(*context, 64, "small");
    CHECK(buffer.tensor(DType::f32, {16}).numel() == 16);
    CHECK_THROWS_WITH_AS(buffer.tensor(DType::f32, {17}),
                         "view (17) f32 at byte 0 of a buffer of 64 bytes", Error);
    CHECK_THROWS_AS(buffer.tensor(DType::f32, {1}, 2), Error);
}

TEST_CASE("context: object<T> is one per context") {
    struct Counter {
        int value = 0;
    };
    const auto a = Context::make_cpu();
    const auto b = Context::make_cpu();
    a->object<Counter>().value = 5;
    CHECK(a->object<Counter>().value == 5);
    CHECK(b->object<Counter>().value == 0);
}

TEST_CASE("context: cuda without CUDA code is refused with the fix") {
    if (kHasCuda) return;
    CHECK_THROWS_WITH_AS(Context::make_cuda(0), doctest::Contains("--train.device=cpu"), Error);
}

TEST_CASE(
    "pci: an NVIDIA display or 3D controller is found, its audio function and others are not") {
    namespace fs = std::filesystem;
    const test::TempFolder temp;
    const fs::path root = temp.path();
    const auto add = [&](const char* slot, const char* vendor, const char* device_class) {
        const fs::path folder = root / "bus/pci/devices" / slot;
        fs::create_directories(folder);
        std::ofstream(folder / "vendor") << vendor << "\n";
        std::ofstream(folder / "class") << device_class << "\n";
    };
    CHECK_FALSE(pci_bus_has_nvidia_device(root.string()));
    add("0000:00:01.0", "0x8086", "0x030000");
    add("0000:00:02.0", "0x10de", "0x040300");
    CHECK_FALSE(pci_bus_has_nvidia_device(root.string()));
    add("0000:00:03.0", "0x10de", "0x030200");
    CHECK(pci_bus_has_nvidia_device(root.string()));
}
