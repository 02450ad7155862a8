// Goal: Philox is Philox4x32-10, and the draws have the promised distribution. Method: the known
// answers of the Random123 distribution, moments of many draws.
#include <cmath>

#include <doctest/doctest.h>

#include "engine/core/rng.h"

using namespace ingot;

TEST_CASE("philox: known answers") {
    const PhiloxBlock zero = philox(0, 0, 0);
    CHECK(zero.word[0] == 0x6627e8d5U);
    CHECK(zero.word[1] == 0xe169c58dU);
    CHECK(zero.word[2] == 0xbc57ac4cU);
    CHECK(zero.word[3] == 0x9b00dbd8U);
    const PhiloxBlock ones = philox(~0ULL, ~0ULL, ~0ULL);
    CHECK(ones.word[0] == 0x408f276dU);
    CHECK(ones.word[1] == 0x41c83b0eU);
    CHECK(ones.word[2] == 0xa20bc7c6U);
    CHECK(ones.word[3] == 0x6d5451fdU);
}

TEST_CASE("philox: normal draws have mean 0, variance 1 and are never infinite") {
    double sum = 0.0;
    double squares = 0.0;
    constexpr int kCount = 200000;
    for (int i = 0; i < kCount; ++i) {
        const double x = philox_normal(7, random_stream(RandomUse::test, 3), i);
        CHECK_FALSE(!std::isfinite(x));
        sum += x;
        squares += x * x;
    }
    CHECK(std::fabs(sum / kCount) < 0.01);
    CHECK(std::fabs(squares / kCount - 1.0) < 0.015);
}

TEST_CASE("philox: uniform draws lie in [0, 1) and differ between uses, streams and positions") {
    double sum = 0.0;
    for (int i = 0; i < 100000; ++i) {
        const double u = philox_uniform(1, random_stream(RandomUse::test, 0), i);
        CHECK_FALSE(!(u >= 0.0 && u < 1.0));
        sum += u;
    }
    CHECK(std::fabs(sum / 100000 - 0.5) < 0.005);
    CHECK(philox_uniform(1, 0, 0) != philox_uniform(2, 0, 0));
    CHECK(philox_uniform(1, 0, 0) != philox_uniform(1, 1, 0));
    CHECK(random_stream(RandomUse::sampling, 5) != random_stream(RandomUse::test, 5));
}
