// Goal: one line a record, complete and repairable, and the same numbers in TensorBoard. Method:
// lines are parsed again; files are torn by hand.
#include <cmath>
#include <limits>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/train/metrics.h"
#include "tests/support/event_file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;
using Json = nlohmann::ordered_json;

namespace {

StepRecord record(std::int64_t step) {
    StepRecord r;
    r.step = step;
    r.epoch = 0.5;
    r.loss = 3.25;
    r.grad_norm = 0.75;
    r.lr = 6e-4;
    r.tokens = 524288;
    r.tokens_per_s = 1e6;
    r.step_ms = 524.288;
    r.forward_ms = 100;
    r.backward_ms = 200;
    r.optimizer_ms = 50;
    r.comm_exposed_ms = 0;
    r.data_wait_ms = 0.125;
    r.token_hash = 0x00f123456789abcdULL;
    return r;
}

std::vector<Json> lines(const std::string& path) {
    std::vector<Json> result;
    std::istringstream text(read_all(path));
    for (std::string line; std::getline(text, line);)
        result.push_back(Json::parse(line));
    return result;
}

}  // namespace

TEST_CASE(
    "metrics: a step's line has the fields of the contract in their order, and one line end") {
    const std::string line = to_json_line(record(7));
    CHECK(line.back() == '\n');
    CHECK(line.find('\n') == line.size() - 1);
    const Json object = Json::parse(line);
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items())
        names.push_back(name);
    CHECK(names == std::vector<std::string>{"step", "epoch", "loss", "grad_norm", "lr", "tokens",
                                            "tokens_per_s", "step_ms", "forward_ms", "backward_ms",
                                            "optimizer_ms", "comm_exposed_ms", "data_wait_ms",
                                            "token_hash"});
    CHECK(object["step"] == 7);
    CHECK(object["loss"] == 3.25);
    CHECK(object["lr"] == 6e-4);
    CHECK(object["tokens"] == 524288);
    CHECK(object["data_wait_ms"] == 0.125);
    CHECK(object["token_hash"] == "00f123456789abcd");
}

TEST_CASE("metrics: a record holds what the GPU reports, and no key for what it does not") {
    StepRecord r = record(3);
    CHECK(to_json_line(r).find("gpu_") == std::string::npos);
    r.gpu.utilization_percent = 97;
    r.gpu.memory_used_bytes = std::int64_t{100} << 30;
    r.gpu.power_w = 643.5;
    r.gpu.temperature_c = 61;
    r.gpu.sm_mhz = 1755;
    r.gpu.memory_mhz = 3201;
    r.gpu.clock_reasons = 0x24;
    const Json object = Json::parse(to_json_line(r));
    CHECK(object.size() == Json::parse(to_json_line(record(3))).size() + 7);
    CHECK(object["gpu_util_percent"] == 97);
    CHECK(object["gpu_mem_used_bytes"] == std::int64_t{100} << 30);
    CHECK(object["gpu_power_w"] == 643.5);
    CHECK(object["gpu_temp_c"] == 61);
    CHECK(object["gpu_sm_mhz"] == 1755);
    CHECK(object["gpu_mem_mhz"] == 3201);
    CHECK(object["gpu_clocks"] == Json({"power cap", "thermal slowdown (software)"}));
    r.gpu.power_w.reset();
    r.gpu.clock_reasons = 0;
    const Json other = Json::parse(to_json_line(r));
    CHECK(other.count("gpu_power_w") == 0);
    CHECK(other["gpu_clocks"] == Json::array());
}

TEST_CASE("metrics: numbers that are not finite are null, so that every line is JSON") {
    StepRecord r = record(1);
    r.loss = std::nan("");
    r.grad_norm = std::numeric_limits<double>::infinity();
    const Json object = Json::parse(to_json_line(r));
    CHECK(object["loss"].is_null());
    CHECK(object["grad_norm"].is_null());
}

TEST_CASE("metrics: steps, validations and the test are in metrics.jsonl and in TensorBoard") {
    const TempFolder folder;
    MetricsWriter writer(folder.path(), 1);
    writer.step(record(1));
    writer.validation({1, 4.5, 1000});
    writer.step(record(2));
    writer.test({2, 4.25, 2000});
    writer.sync();
    CHECK(writer.path() == folder / "metrics.jsonl");
    const std::vector<Json> all = lines(writer.path());
    REQUIRE(all.size() == 4);
    CHECK(all[1] == Json({{"step", 1}, {"val_loss", 4.5}, {"val_tokens", 1000}}));
    CHECK(all[2]["step"] == 2);
    CHECK(all[3] == Json({{"step", 2}, {"test_loss", 4.25}, {"test_tokens", 2000}}));

    const EventFile events = read_event_file(writer.tensorboard_path());
    std::map<std::string, std::vector<std::pair<std::int64_t, float>>> curves;
    for (const EventScalar& s : events.scalars)
        curves[s.tag].emplace_back(s.step, s.value);
    using Curve = std::vector<std::pair<std::int64_t, float>>;
    CHECK(curves["loss"] == Curve{{1, 3.25F}, {2, 3.25F}});
    CHECK(curves["val_loss"] == Curve{{1, 4.5F}});
    CHECK(curves["test_loss"] == Curve{{2, 4.25F}});
    CHECK(curves["learning_rate"] == Curve{{1, 6e-4F}, {2, 6e-4F}});
    CHECK(curves["step"] == Curve{{1, 1.0F}, {2, 2.0F}});
    CHECK(curves["epoch"].size() == 2);
    CHECK(curves["tokens_per_s"] == Curve{{1, 1e6F}, {2, 1e6F}});
    CHECK(curves["grad_norm"] == Curve{{1, 0.75F}, {2, 0.75F}});
}

TEST_CASE("metrics: a torn last line is cut off, whole lines stay") {
    const TempFolder folder;
    const std::string path = folder / "metrics.jsonl";
    { MetricsWriter(folder.path(), 1).step(record(1)); }
    const std::string whole = read_all(path);
    for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, whole.size() - 1}) {
        write_all(path, whole + to_json_line(record(2)).substr(0, kept));
        MetricsWriter writer(folder.path(), 2);
        CHECK(writer.torn_bytes() == static_cast<std::int64_t>(kept));
        writer.step(record(2));
        const std::vector<Json> all = lines(path);
        REQUIRE(all.size() == 2);
        CHECK(all[0]["step"] == 1);
        CHECK(all[1]["step"] == 2);
    }
    write_all(path, "{\"step\"");
    MetricsWriter writer(folder.path(), 1);
    CHECK(writer.torn_bytes() == 7);
    CHECK(read_all(path).empty());
}

TEST_CASE("metrics: a process that does steps again marks it, one that goes on does not") {
    const TempFolder folder;
    const std::string path = folder / "metrics.jsonl";
    {
        MetricsWriter writer(folder.path(), 1);
        for (int step = 1; step <= 8; ++step)
            writer.step(record(step));
    }
    { MetricsWriter(folder.path(), 9).step(record(9)); }
    CHECK(lines(path).size() == 9);
    {
        MetricsWriter writer(folder.path(), 6);
        writer.step(record(6));
    }
    std::vector<Json> all = lines(path);
    REQUIRE(all.size() == 11);
    CHECK(all[9] == Json({{"event", "start"}, {"first_step", 6}}));
    CHECK(all[10]["step"] == 6);
    // A mark at the end counts like a step.
    { MetricsWriter(folder.path(), 6); }
    { MetricsWriter(folder.path(), 6); }
    CHECK(lines(path).size() == 13);
}

TEST_CASE("metrics: a full disk is named with the file, and the file can be gone on with") {
    const TempFolder folder;
    const std::string path = folder / "metrics.jsonl";
    {
        MetricsWriter writer(folder.path(), 1);
        writer.step(record(1));
        const FileSizeLimit limit(std::filesystem::file_size(path) + 10);
        CHECK(error_of("file.full", [&] { writer.step(record(2)); }) ==
              Contains(str("cannot write ", path, ": ").c_str()));
    }
    MetricsWriter writer(folder.path(), 2);
    CHECK(writer.torn_bytes() == 10);
    writer.step(record(2));
    CHECK(lines(path).size() == 2);
}

TEST_CASE("metrics: what cannot be a metrics file is not touched") {
    const TempFolder folder;
    write_all(folder / "metrics.jsonl", std::string(100000, 'x'));
    CHECK(error_of("metrics.foreign", [&] { MetricsWriter writer(folder.path(), 1); }) ==
          Contains("is no metrics file, move it away"));
    CHECK(std::filesystem::file_size(folder / "metrics.jsonl") == 100000);
}
