// Goal: the op profile tells where the time of a step went, each millisecond once.
// Method: ops of known length on CPU streams, also in adversarial order, nested, thrown out of and
// outside a profile.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

#include "engine/core/op_range.h"

using namespace ingot;

namespace {

void spin(Stream stream, int ms) {
    stream.run([ms] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
}

void op(Stream stream, const char* name, int ms, const OpCost& cost = {}) {
    const OpRange range(stream, name, cost);
    spin(stream, ms);
}

// An op made of two others, with a rest of its own.
void composite(Stream stream) {
    const OpRange range(stream, "composite", {.bytes = 1000, .flops = 1000.0});
    op(stream, "inner", 4);
    op(stream, "other", 2);
    spin(stream, 20);
}

}  // namespace

TEST_CASE("op profile: calls, times and costs add up by name and type, the longest first") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    OpProfile profile(*context);
    op(stream, "short", 2, {.bytes = 10, .flops = 3.0, .dtype = DType::bf16});
    op(stream, "long", 20, {.bytes = 7});
    op(stream, "short", 3, {.bytes = 20, .flops = 4.0, .dtype = DType::bf16});
    op(stream, "short", 1, {.bytes = 5, .flops = 1.0, .dtype = DType::f32});
    const std::vector<OpPart> parts = profile.parts();
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].name == "long");
    CHECK(parts[0].calls == 1);
    CHECK(parts[0].bytes == 7);
    CHECK(parts[0].flops == 0.0);
    CHECK(parts[0].ms >= 20.0);
    CHECK(parts[1].name == "short");
    CHECK(parts[1].dtype == DType::bf16);
    CHECK(parts[1].calls == 2);
    CHECK(parts[1].bytes == 30);
    CHECK(parts[1].flops == 7.0);
    CHECK(parts[1].ms >= 5.0);
    CHECK(parts[1].ms < parts[0].ms);
    CHECK(parts[2].dtype == DType::f32);
    CHECK(parts[2].calls == 1);
}

TEST_CASE("op profile: an op made of ops is shown by its parts, so that no time counts twice") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    OpProfile profile(*context);
    const auto begin = std::chrono::steady_clock::now();
    composite(stream);
    op(stream, "inner", 1);
    const double elapsed_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    const std::vector<OpPart> parts = profile.parts();
    REQUIRE(parts.size() == 3);
    CHECK(parts[0].name == "composite/inner");
    CHECK(parts[1].name == "composite/other");
    CHECK(parts[2].name == "inner");
    double sum_ms = 0.0;
    for (const OpPart& part : parts)
        sum_ms += part.ms;
    CHECK(sum_ms >= 7.0);
    CHECK(sum_ms <= elapsed_ms - 20.0);  // the rest of the composite belongs to no part
    CHECK(parts[0].bytes + parts[1].bytes + parts[2].bytes == 0);
}

TEST_CASE("op profile: only the compute stream counts, and only while a profile is attached") {
    const auto context = Context::make_cpu();
    op(context->compute_stream(), "before", 0);
    OpProfile profile(*context);
    op(context->copy_stream(), "copy", 0);
    op(context->comm_stream(), "reduce", 0);
    op(context->compute_stream(), "counted", 0);
    profile.stop();
    op(context->compute_stream(), "after", 0);
    const std::vector<OpPart> parts = profile.parts();
    REQUIRE(parts.size() == 1);
    CHECK(parts[0].name == "counted");
    CHECK(context->op_profile() == nullptr);
}

TEST_CASE("op profile: an op that throws ends its range") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    OpProfile profile(*context);
    const auto throwing = [&] {
        const OpRange range(stream, "throws", {});
        throw std::runtime_error("from inside");
    };
    CHECK_THROWS_AS(throwing(), std::runtime_error);
    op(stream, "next", 1);
    const std::vector<OpPart> parts = profile.parts();
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].name == "next");
    CHECK(parts[1].name == "throws");
}

TEST_CASE("op profile: times are those of the execution, also of queued work") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 3});
    OpProfile profile(*context);
    op(context->compute_stream(), "queued", 5);
    const std::vector<OpPart> parts = profile.parts();  // runs what is queued
    REQUIRE(parts.size() == 1);
    CHECK(parts[0].ms >= 5.0);
}

TEST_CASE("op profile: a second one of a context is refused, a later one is not") {
    const auto context = Context::make_cpu();
    {
        const OpProfile first(*context);
        CHECK_THROWS_WITH_AS(std::make_unique<OpProfile>(*context),
                             doctest::Contains("the context has one already"), Error);
        CHECK(context->op_profile() == &first);
    }
    const OpProfile second(*context);
    CHECK(context->op_profile() == &second);
}

TEST_CASE("op cost: null views have no bytes") {
    float values[6] = {};
    const Tensor some = make_tensor(values, DType::f32, {2, 3}, Device::cpu);
    CHECK(bytes_of_tensors(some, Tensor{}, ConstTensor{}, some) == 48);
    CHECK(bytes_of_tensors(Tensor{}) == 0);
}
