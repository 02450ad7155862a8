// Goal: sampling draws from the distribution that was asked for, and greedy is greedy. Method:
// hand- made logits, frequencies over many draws.
#include <cmath>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "engine/core/rng.h"
#include "engine/train/text_sampler.h"

using namespace ingot;

namespace {

const std::vector<float> kLogits = {1.0F, 3.0F, 3.0F, 2.0F};

std::map<std::int64_t, int> frequencies(const std::vector<float>& logits, SampleOptions options) {
    std::map<std::int64_t, int> counts;
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const double u = philox_uniform(9, random_stream(RandomUse::test, 2), i);
        ++counts[sample_token(logits, options, u)];
    }
    return counts;
}

}  // namespace

TEST_CASE("sample_token: temperature 0 is greedy and the lowest id wins a tie") {
    for (const double u : {0.0, 0.3, 0.9999}) {
        CHECK(sample_token(kLogits, {.temperature = 0.0, .top_k = 0}, u) == 1);
    }
}

TEST_CASE("sample_token: top_k 1 is greedy at any temperature") {
    for (const double temperature : {1e-6, 1.0, 100.0}) {
        CHECK(sample_token(kLogits, {.temperature = temperature, .top_k = 1}, 0.9) == 1);
    }
}

TEST_CASE("sample_token: a tiny temperature draws one of the tied best, never NaN") {
    const auto counts = frequencies(kLogits, {.temperature = 1e-6, .top_k = 0});
    CHECK(counts.size() == 2);
    CHECK(counts.at(1) + counts.at(2) == 20000);
    CHECK(counts.at(1) > 9000);
    CHECK(counts.at(2) > 9000);
}

TEST_CASE("sample_token: a negative temperature is refused with its value") {
    CHECK_THROWS_WITH_AS(sample_token(kLogits, {.temperature = -1.0, .top_k = 0}, 0.5),
                         "sample.temperature = -1, must be 0 (greedy) or above", Error);
}

TEST_CASE("sample_token: top_k 0 or above the vocabulary cuts nothing; frequencies are softmax") {
    for (const std::int64_t top_k : {0, 4, 100}) {
        const auto counts = frequencies(kLogits, {.temperature = 1.0, .top_k = top_k});
        const double total = std::exp(1.0) + 2.0 * std::exp(3.0) + std::exp(2.0);
        for (int id = 0; id < 4; ++id) {
            const double expected = std::exp(kLogits[static_cast<std::size_t>(id)]) / total;
            CHECK(counts.at(id) / 20000.0 == doctest::Approx(expected).epsilon(0.06));
        }
    }
}

TEST_CASE("sample_token: equal logits cut to two keep the two lowest ids") {
    const auto counts = frequencies(std::vector<float>(5, 1.5F), {.temperature = 1.0, .top_k = 2});
    CHECK(counts.size() == 2);
    CHECK(counts.count(0) == 1);
    CHECK(counts.count(1) == 1);
}

TEST_CASE("sample_token: NaN and infinities are never drawn, all of them is refused") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(sample_token({nan, 2.0F, -inf}, {.temperature = 1.0, .top_k = 0}, 0.99) == 1);
    CHECK_THROWS_WITH_AS(sample_token({nan, nan}, {}, 0.5),
                         doctest::Contains("none of 2 logits is finite"), Error);
}
