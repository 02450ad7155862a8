// Goal: the learning rate of every step is the documented formula, with exact end points. Method:
// tables computed by hand and by the formula in float64.
#include <cmath>

#include <doctest/doctest.h>

#include "engine/train/schedule.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Approx;
using doctest::Contains;
using Kind = TrainConfig::Schedule::Kind;

namespace {

Schedule make(
    Kind kind, std::int64_t steps, std::int64_t warmup, double ratio, double decay = 0.2) {
    TrainConfig config;
    config.optimizer.lr = 0.003;
    config.schedule.kind = kind;
    config.schedule.warmup_steps = warmup;
    config.schedule.final_lr_ratio = ratio;
    config.schedule.decay_fraction = decay;
    return Schedule(config, steps);
}

}  // namespace

TEST_CASE("schedule: end points are exact for every kind, length and warm-up") {
    for (const Kind kind : {Kind::constant, Kind::linear, Kind::cosine, Kind::wsd}) {
        for (const std::int64_t steps : {2, 3, 10, 1000, 1000003}) {
            for (const std::int64_t warmup : {0, 1, 2, 7, 1000}) {
                for (const double ratio : {0.0, 0.1, 0.3, 1.0}) {
                    if (warmup > steps) continue;
                    const Schedule s = make(kind, steps, warmup, ratio);
                    const std::int64_t peak = std::max<std::int64_t>(warmup, 1);
                    CHECK(s.learning_rate(1) == 0.003 / static_cast<double>(peak));
                    CHECK(s.learning_rate(peak) == 0.003);
                    const bool decays = kind != Kind::constant && steps > peak;
                    CHECK(s.learning_rate(steps) == (decays ? 0.003 * ratio : 0.003));
                }
            }
        }
    }
}

TEST_CASE("schedule: the tables of ten steps are those of the formulas") {
    const double constant[10] = {0.001, 0.002, 0.003, 0.003, 0.003,
                                 0.003, 0.003, 0.003, 0.003, 0.003};
    // From step 3 to step 10 in 7 equal parts, down to a tenth.
    const double linear[10] = {0.001,        0.002,        0.003,        0.0026142857, 0.0022285714,
                               0.0018428571, 0.0014571429, 0.0010714286, 0.0006857143, 0.0003};
    // 0.0003 + 0.00135 (1 + cos(pi k / 7)), k = 1 .. 7.
    const double cosine[10] = {0.001,        0.002,        0.003,        0.0028663080, 0.0024917112,
                               0.0019504033, 0.0013495967, 0.0008082888, 0.0004336920, 0.0003};
    // 20 % of 10 steps decay: half way, then a tenth.
    const double wsd[10] = {0.001, 0.002, 0.003, 0.003,   0.003,
                            0.003, 0.003, 0.003, 0.00165, 0.0003};
    const std::pair<Kind, const double*> tables[] = {{Kind::constant, constant},
                                                     {Kind::linear, linear},
                                                     {Kind::cosine, cosine},
                                                     {Kind::wsd, wsd}};
    for (const auto& [kind, table] : tables) {
        const Schedule s = make(kind, 10, 3, 0.1);
        for (int step = 1; step <= 10; ++step) {
            INFO(static_cast<int>(kind), " step ", step);
            CHECK(s.learning_rate(step) == Approx(table[step - 1]).epsilon(1e-7));
        }
    }
}

TEST_CASE(
    "schedule: rates rise in the warm-up, never rise after it, and stay within their limits") {
    for (const Kind kind : {Kind::constant, Kind::linear, Kind::cosine, Kind::wsd}) {
        const Schedule s = make(kind, 500, 40, 0.05, 0.3);
        for (std::int64_t step = 2; step <= 500; ++step) {
            const double change = s.learning_rate(step) - s.learning_rate(step - 1);
            CHECK((step <= 40 ? change > 0 : change <= 0));
            CHECK(s.learning_rate(step) <= 0.003);
            CHECK(s.learning_rate(step) >= 0.003 / 40);
        }
    }
}

TEST_CASE(
    "schedule: wsd decays in the given part of the steps, at least one, at most what is left") {
    CHECK(make(Kind::wsd, 1000, 10, 0.1, 0.25).decay_steps() == 250);
    CHECK(make(Kind::wsd, 1000, 10, 0.1, 1e-9).decay_steps() == 1);
    CHECK(make(Kind::wsd, 1000, 10, 0.1, 1.0).decay_steps() == 990);
    CHECK(make(Kind::wsd, 1000, 1000, 0.1).decay_steps() == 0);
    CHECK(make(Kind::wsd, 1000, 10, 0.1, 0.25).learning_rate(750) == 0.003);
    CHECK(make(Kind::wsd, 1000, 10, 0.1, 0.25).learning_rate(751) < 0.003);
    CHECK(make(Kind::cosine, 1, 0, 0.1).learning_rate(1) == 0.003);
}

TEST_CASE("schedule: steps outside the run and a warm-up longer than it are refused") {
    CHECK(error_of("config.combination", [] { make(Kind::cosine, 5, 6, 0.1); }) ==
          Contains("schedule.warmup_steps = 6, allowed is at most the 5 steps"));
    CHECK(error_of("schedule.steps", [] { make(Kind::cosine, 0, 0, 0.1); }) == Contains("0 steps"));
    const Schedule s = make(Kind::cosine, 5, 0, 0.1);
    CHECK(error_of("schedule.steps", [&] { s.learning_rate(0); }) ==
          Contains("step 0, allowed 1..5"));
    CHECK(error_of("schedule.steps", [&] { s.learning_rate(6); }) == Contains("step 6"));
}
