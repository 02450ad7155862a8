// Goal: the benchmark's arithmetic is right, every case can be made and called, and what a user can
// get wrong is named. Method: known numbers; one call of every case; a short run into a JSON file.
#include <cmath>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/kernels/cases.h"
#include "kernels/blas.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::bench;
using ingot::test::TempFolder;

namespace {

Case sleeping_case(double seconds) {
    return {
        .op = "sleep",
        .shape = "1",
        .dtype = DType::f32,
        .bytes = 2e6,
        .flops = 0.0,
        .make = [=](Inputs& in) -> Call {
            in.space(DType::u8, {100 << 20});
            return [=](Stream s) {
                s.run([=] { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); });
            };
        }};
}

}  // namespace

TEST_CASE("bench: quantiles interpolate between neighbours") {
    CHECK(quantile({3.0}, 0.5) == 3.0);
    CHECK(quantile({4.0, 1.0, 3.0, 2.0}, 0.5) == 2.5);
    CHECK(quantile({4.0, 1.0, 3.0, 2.0}, 0.0) == 1.0);
    CHECK(quantile({4.0, 1.0, 3.0, 2.0}, 1.0) == 4.0);
    CHECK(quantile({5.0, 1.0, 2.0, 3.0, 4.0}, 0.25) == 2.0);
    CHECK_THROWS_WITH_AS(quantile({}, 0.5), doctest::Contains("no samples"), Error);
}

TEST_CASE("bench: the roof is the slower of memory and arithmetic, for the case's dtype") {
    const Roof roof{.copy_bytes_per_s = 1e9, .f32_flops_per_s = 1e12, .bf16_flops_per_s = 8e12};
    Case c = sleeping_case(0.0);
    CHECK(roof.seconds(c) == doctest::Approx(2e-3));
    c.flops = 4e9;
    CHECK(roof.seconds(c) == doctest::Approx(4e-3));
    c.dtype = DType::bf16;
    CHECK(roof.seconds(c) == doctest::Approx(2e-3));
}

TEST_CASE("bench: a call of 2 ms is measured as about 2 ms, over inputs beyond the cache") {
    const auto context = Context::make_cpu();
    const Result result = measure(*context, sleeping_case(2e-3), 0.02);
    CHECK(result.seconds >= 2e-3);
    CHECK(result.seconds < 2e-2);
    CHECK(result.samples.size() >= 5);
    CHECK(quantile(result.samples, 0.5) == result.seconds);
    CHECK(result.input_sets >= 2);
    CHECK_FALSE(result.is_flushed);
    const Roof roof{.copy_bytes_per_s = 1e9, .f32_flops_per_s = 1e12, .bf16_flops_per_s = 1e12};
    const std::string text =
        line(sleeping_case(0.0), {.own = {.seconds = 4e-3}, .library = {}}, roof, Device::cpu);
    CHECK(text.find("4000.00") != std::string::npos);
    CHECK(text.find(" 0.5 ") != std::string::npos);  // GB/s
    CHECK(text.find(" 50.0") != std::string::npos);  // % of the roof
    CHECK(text.substr(text.size() - 2) == " -");     // no library has it
}

TEST_CASE("bench: calls too small to rotate past the cache are timed alone, after a flush") {
    const auto context = Context::make_cpu();
    int num_calls = 0;
    const Case tiny = {.op = "tiny",
                       .shape = "1",
                       .dtype = DType::f32,
                       .bytes = 4.0,
                       .flops = 0.0,
                       .make = [&](Inputs& in) -> Call {
                           in.space(DType::f32, {1});
                           return [&](Stream s) { s.run([&] { ++num_calls; }); };
                       }};
    const Result result = measure(*context, tiny, 1e-3);
    CHECK(result.is_flushed);
    CHECK(result.input_sets == 1024);
    CHECK(result.calls == 1);
    CHECK(result.samples.size() == 5);
    CHECK(num_calls == 1024 + 1 + 5);  // the warm-up, the estimate, the samples
    // The flush is no part of the time: it reads tens of megabytes, which takes milliseconds.
    CHECK(result.seconds < 1e-3);
}

TEST_CASE("bench: a case that is to be alone is timed alone, after a flush") {
    const auto context = Context::make_cpu();
    Case c = sleeping_case(1e-4);
    CHECK(measure(*context, c, 2e-2).calls > 1);
    c.is_alone = true;
    const Result result = measure(*context, c, 2e-2);
    CHECK(result.is_flushed);
    CHECK(result.calls == 1);
    CHECK(result.seconds >= 1e-4);
}

TEST_CASE("bench: the library's call is measured beside ours and named in the line") {
    const auto context = Context::make_cpu();
    Case c = sleeping_case(0.0);
    CHECK(measure_library(*context, c, 0.02).samples.empty());
    c.library = {.name = "sleeper 2", .make = sleeping_case(2e-3).make};
    Measured measured;
    measured.own.seconds = 4e-3;
    measured.library = measure_library(*context, c, 0.02);
    CHECK(measured.library.seconds >= 2e-3);
    CHECK(measured.library.seconds < 2e-2);
    CHECK(measured.library.samples.size() >= 5);
    const Roof roof{.copy_bytes_per_s = 1e9, .f32_flops_per_s = 1e12, .bf16_flops_per_s = 1e12};
    const std::string text = line(c, measured, roof, Device::cpu);
    CHECK(text.find("4000.00") != std::string::npos);
    CHECK(text.substr(text.size() - 10) == " sleeper 2");
    char us[32];
    std::snprintf(us, sizeof(us), "%.2f", measured.library.seconds * 1e6);
    CHECK(text.find(us) != std::string::npos);
}

TEST_CASE("bench: inputs hold what was asked for") {
    const auto context = Context::make_cpu();
    Inputs in(*context);
    const Tensor values = in.values(DType::f32, {3, 700000}, 2.0F, 3.0F);  // beyond the pattern
    const Tensor ids = in.ids({50}, 7);
    for (std::int64_t i = 0; i < values.numel(); i += 997) {
        CHECK(values.ptr<float>()[i] >= 2.0F);
        CHECK(values.ptr<float>()[i] <= 3.0F);
    }
    std::set<std::int32_t> seen(ids.ptr<std::int32_t>(), ids.ptr<std::int32_t>() + 50);
    CHECK(*seen.begin() >= 0);
    CHECK(*seen.rbegin() < 7);
    CHECK(seen.size() > 3);
    CHECK(num_distinct(random_ids(50, 7)) == static_cast<std::int64_t>(seen.size()));
    CHECK(num_distinct(random_ids(65536, 1)) == 1);
    CHECK(in.exactly({1.5F, 2.5F}).ptr<float>()[1] == 2.5F);
    CHECK(in.size_bytes() == 4 * 2100000 + 4 * 50 + 8);
}

TEST_CASE("bench: ids as in text are below the limit and follow Zipf's law") {
    constexpr std::int64_t kCount = 65536;
    const std::vector<std::int32_t> ids = zipf_ids(kCount, 50257);
    std::vector<std::int64_t> counts(50257);
    for (const std::int32_t id : ids)
        ++counts.at(static_cast<std::size_t>(id));
    // log((id + 2) / (id + 1)) / log(limit + 1) of them are id; four standard deviations.
    for (const std::int64_t id : {0, 1, 9}) {
        const double share =
            std::log(static_cast<double>(id + 2) / static_cast<double>(id + 1)) / std::log(50258.0);
        const double expected = share * static_cast<double>(kCount);
        CHECK(std::fabs(static_cast<double>(counts[static_cast<std::size_t>(id)]) - expected) <
              4.0 * std::sqrt(expected));
    }
    CHECK(num_distinct(ids) > 5000);
    for (const std::int32_t id : zipf_ids(1000, 1))
        CHECK(id == 0);
}

TEST_CASE("bench: every case can be called, says what it moves, and has a name of its own") {
    const auto context = Context::make_cpu();
    std::set<std::string> names;
    for (const Case& c : all_cases(Device::cpu)) {
        CAPTURE(c.op);
        CAPTURE(c.shape);
        CHECK(c.bytes > 0.0);
        CHECK(names.insert(str(c.op, " ", c.shape, " ", name_of(c.dtype))).second);
        Inputs in(*context);
        CHECK_NOTHROW(c.make(in)(context->compute_stream()));
        CHECK(static_cast<double>(in.size_bytes()) >=
              0.4 * c.bytes);  // in-place ones move it twice
    }
    CHECK(names.size() >= 60);
}

TEST_CASE("bench: on CUDA every matmul of cuBLASLt alone stands beside the heuristic's choice") {
    int with_library = 0;
    for (const Case& c : all_cases(Device::cuda)) {
        if (c.op.rfind("matmul_", 0) != 0) continue;
        CAPTURE(c.op);
        const bool is_split = c.dtype == DType::f32 && c.op.find("gelu") != std::string::npos;
        CHECK(c.library.name == (is_split ? "" : "cuBLASLt heuristic"));
        CHECK((c.library.make != nullptr) == !is_split);
        with_library += is_split ? 0 : 1;
    }
    CHECK(with_library == 22);
}

TEST_CASE("bench: --describe names the device and measures nothing") {
    const TempFolder folder;
    const std::string path = folder / "none.json";
    std::ostringstream text;
    std::streambuf* console = std::cout.rdbuf(text.rdbuf());
    run({.filters = {}, .json = path, .device = "cpu", .is_describe = true});
    std::cout.rdbuf(console);
    CHECK(text.str() == blas::description() + "\n");
    CHECK_FALSE(std::ifstream(path).good());
}

TEST_CASE("bench: a run writes its results, and names a wrong filter, device, time and file") {
    const TempFolder folder;
    const std::string path = folder / "test_bench.json";
    Options options{.filters = {"sum 512 f32"}, .json = path, .device = "cpu", .seconds = 1e-3};
    run(options);
    std::ifstream file(path);
    const nlohmann::json json = nlohmann::json::parse(file);
    CHECK(json["device"] == "cpu");
    CHECK(json["cudnn"] == "");  // which is for the GPU alone
    CHECK(json["roof"]["copy_gb_per_s"].get<double>() > 0.1);
    CHECK(json["roof"]["f32_tflop_per_s"].get<double>() > 1e-4);
    REQUIRE(json["cases"].size() == 1);
    CHECK(json["cases"][0]["op"] == "sum");
    CHECK(json["cases"][0]["us"].get<double>() > 0.0);
    CHECK(json["cases"][0]["roof_percent"].get<double>() > 0.0);
    CHECK(json["cases"][0]["samples_us"].size() >= 5);
    CHECK(json["cases"][0]["samples_us"][0].get<double>() > 0.0);
    CHECK(json["cases"][0]["library"].is_null());
    CHECK(json["cases"][0]["library_us"].is_null());
    const auto message = [&](Options changed) {
        try {
            run(changed);
        } catch (const Error& error) {
            return std::string(error.code()) + " " + error.what();
        }
        return std::string("accepted");
    };
    options.filters = {"sum 512 f32", "nothing", "fill"};
    run(options);
    std::ifstream several(path);
    CHECK(nlohmann::json::parse(several)["cases"].size() == 3);  // sum, and fill in two dtypes
    options.filters = {"nothing"};
    CHECK(message(options) == "bench.filter --filter=nothing matches no case; --list prints them");
    options.filters = {"sum"};
    options.device = "tpu";
    CHECK(message(options) == "bench.device --device=tpu, must be auto, cpu or cuda");
    options.device = "cpu";
    options.seconds = 0.0;
    CHECK(message(options) == "bench.seconds --seconds=0, must be above 0");
    options.seconds = 1e-3;
    options.json = "/proc/none/x.json";
    CHECK(message(options) == "bench.json --json=/proc/none/x.json cannot be written");
}
