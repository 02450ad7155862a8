// Goal: what a run shows is readable, keeps its columns and says nothing false about odd values.
// Method: values in, whole lines out.
#include <cmath>
#include <limits>
#include <sstream>

#include <doctest/doctest.h>

#include "engine/train/console.h"

using namespace ingot;

namespace {

StepLine typical() {
    StepLine line;
    line.step = 120;
    line.total_steps = 1000;
    line.loss = 3.45674;
    line.grad_norm = 0.8123;
    line.lr = 2.95e-3;
    line.step_ms = 812.34;
    line.tokens_per_s = 2521.6;
    line.mfu = 0.423;
    line.data_wait_fraction = 0.0004;
    line.eta_s = 715;
    return line;
}

}  // namespace

TEST_CASE("console: a step is one line with everything a reader looks for") {
    CHECK(format_step(typical()) ==
          "step  120/1000  loss 3.4567  norm  0.812  lr 2.95e-03   812.3 ms      2,522 tok/s"
          "  mfu 42.3%  wait  0.0%  eta 11 m 55 s");
}

TEST_CASE("console: lines keep their width from the first step to the last, and for odd values") {
    const std::size_t width = format_step(typical()).size();
    CHECK(width <= 120);
    const double inf = std::numeric_limits<double>::infinity();
    for (const double value :
         {0.0, 1e-9, 0.5, 11.0, 999.9, 123456.7, 1e30, inf, -inf, std::nan("")}) {
        StepLine line = typical();
        line.step = 1;
        line.loss = value;
        line.grad_norm = value;
        line.lr = 1e-10;
        line.step_ms = value;
        line.mfu = value;
        line.data_wait_fraction = -1;
        line.eta_s = std::min(std::abs(value), 1e8);
        CHECK_MESSAGE(format_step(line).size() == width, format_step(line));
    }
}

TEST_CASE("console: what is not known or not finite is said, not invented") {
    StepLine line = typical();
    line.mfu = -1;
    line.eta_s = -1;
    line.loss = std::nan("");
    line.tokens_per_s = std::nan("");
    const std::string text = format_step(line);
    CHECK(text.find("loss    nan") != std::string::npos);
    CHECK(text.find("mfu     -") != std::string::npos);
    CHECK(text.find("eta         -") != std::string::npos);
}

TEST_CASE("console: durations, bytes, counts and numbers read well at every size") {
    CHECK(format_duration(0) == "0.0 s");
    CHECK(format_duration(9.94) == "9.9 s");
    CHECK(format_duration(9.96) == "10 s");
    CHECK(format_duration(59.6) == "1 m 00 s");
    CHECK(format_duration(725) == "12 m 05 s");
    CHECK(format_duration(3599.7) == "1 h 00 m");
    CHECK(format_duration(11240) == "3 h 07 m");
    CHECK(format_duration(2 * 86400 + 4 * 3600) == "2 d 04 h");
    CHECK(format_duration(1e8) == "1157 d");
    CHECK(format_duration(-1) == "-");
    CHECK(format_duration(std::nan("")) == "-");
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(812) == "812 B");
    CHECK(format_bytes(1024) == "1.00 KiB");
    CHECK(format_bytes(1572864) == "1.50 MiB");
    CHECK(format_bytes(149250519859) == "139.0 GiB");
    CHECK(format_bytes((1LL << 30) - 1) == "1.00 GiB");
    CHECK(format_bytes(-2048) == "-2.00 KiB");
    CHECK(format_count(0) == "0");
    CHECK(format_count(999) == "999");
    CHECK(format_count(1000) == "1,000");
    CHECK(format_count(-123456) == "-123,456");
    CHECK(format_count(1234567) == "1,234,567");
    CHECK(format_number(0.00012345) == "0.0001234");
    CHECK(format_number(std::nan("")) == "nan");
}

TEST_CASE("console: the configuration shows every key once and marks what was changed") {
    TrainConfig config;
    config.train.micro_batch = 3;
    config.data.val = "a\nb";
    const std::string text = format_config(config);
    int marked = 0, keys = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        marked += line.rfind("  * ", 0) == 0 ? 1 : 0;
        keys += line.find('.') != std::string::npos ? 1 : 0;
        CHECK(line.size() <= 100);
    }
    CHECK(marked == 2);
    CHECK(text.find("  * train.micro_batch        3\n") != std::string::npos);
    CHECK(text.find("a\\nb\n") != std::string::npos);
    CHECK(text.find("    data.train               \"\"\n") != std::string::npos);
    for (const ConfigKeyInfo& key : config_keys()) {
        CHECK(text.find(key.name + " ") == text.rfind(key.name + " "));
        CHECK(text.find(key.name + " ") != std::string::npos);
    }
    CHECK(keys >= static_cast<int>(config_keys().size()));
}

TEST_CASE("console: the phases add up to the total") {
    CHECK(format_phases({{"forward", 30}, {"backward", 60}}, 100) ==
          "time per phase\n"
          "  forward        30 s   30.0%\n"
          "  backward   1 m 00 s   60.0%\n"
          "  other          10 s   10.0%\n"
          "  total      1 m 40 s  100.0%\n");
    const std::string whole = format_phases({{"forward", 100}}, 100);
    CHECK(whole.find("other") == std::string::npos);
    CHECK(format_phases({}, 0).find("total") != std::string::npos);
}
