// Goal: the order of samples is a permutation, a function of (seed, step, k) alone, close to
// uniform, and epochs have the promised number of steps. Method: full enumeration of many sizes,
// known answers, chi-square.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "data/sampler.h"
#include "tests/data/shard_fixture.h"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<std::int64_t> order(std::uint64_t seed, std::int64_t epoch, std::int64_t size) {
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < size; ++i)
        result.push_back(permute(seed, epoch, size, i));
    return result;
}

bool is_permutation_of_range(std::vector<std::int64_t> values) {
    std::sort(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] != static_cast<std::int64_t>(i)) return false;
    return true;
}

}  // namespace

TEST_CASE("permute: a bijection of [0, size) for every size to 300 and around powers of two") {
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = 1; size <= 300; ++size)
        sizes.push_back(size);
    for (int bits = 9; bits <= 17; ++bits) {
        for (const int off : {-1, 0, 1})
            sizes.push_back((std::int64_t{1} << bits) + off);
    }
    for (const std::int64_t prime : {997, 7919, 65537, 104729})
        sizes.push_back(prime);
    for (const std::int64_t size : sizes) {
        for (const std::uint64_t seed :
             {std::uint64_t{0}, std::uint64_t{1337}, ~std::uint64_t{0}}) {
            if (!is_permutation_of_range(order(seed, 2, size)))
                FAIL_CHECK("size " << size << ", seed " << seed << " is no permutation");
        }
    }
}

TEST_CASE("permute: large sizes stay in range, without collisions in a sample, past 2^32 too") {
    for (const std::int64_t size :
         {(std::int64_t{1} << 31) + 11, (std::int64_t{1} << 40) - 87, std::int64_t{1} << 62}) {
        std::set<std::int64_t> seen;
        bool high_half = false;
        for (std::int64_t i = 0; i < 20000; ++i) {
            const std::int64_t value = permute(5, 0, size, size - 1 - i);
            CHECK_FALSE((value < 0 || value >= size));
            high_half = high_half || value > size / 2;
            seen.insert(value);
        }
        CHECK(seen.size() == 20000);
        CHECK(high_half);
    }
}

TEST_CASE("permute: the order differs between seeds and epochs, and is not the identity") {
    CHECK(order(1, 0, 1000) != order(2, 0, 1000));
    CHECK(order(1, 0, 1000) != order(1, 1, 1000));
    CHECK(order(1, 0, 1000) == order(1, 0, 1000));
    int fixed_points = 0;
    const std::vector<std::int64_t> o = order(1, 0, 1000);
    for (std::int64_t i = 0; i < 1000; ++i)
        fixed_points += o[i] == i ? 1 : 0;
    CHECK(fixed_points < 8);  // 1 expected
}

TEST_CASE("permute: the order of a seed never changes between versions") {
    // Resuming a run, and comparing runs across ranks, rely on it.
    CHECK(order(1337, 0, 10) == std::vector<std::int64_t>{0, 1, 5, 6, 8, 4, 2, 3, 9, 7});
    CHECK(permute(1337, 3, 10000019, 42) == 9214975);
}

TEST_CASE("permute: all orders of 3 and 4 windows come up about equally often") {
    for (const std::int64_t size : {3, 4}) {
        std::map<std::vector<std::int64_t>, int> counts;
        const int draws = 24000;
        for (int seed = 0; seed < draws; ++seed)
            ++counts[order(static_cast<std::uint64_t>(seed), 0, size)];
        const std::size_t orders = size == 3 ? 6 : 24;
        CHECK(counts.size() == orders);
        const double expected = static_cast<double>(draws) / static_cast<double>(orders);
        double chi_square = 0.0;
        for (const auto& [unused, count] : counts)
            chi_square += (count - expected) * (count - expected) / expected;
        // Mean is orders - 1; 5 standard deviations of sqrt(2 (orders - 1)) above it.
        const double degrees = static_cast<double>(orders) - 1.0;
        CHECK(chi_square < degrees + 5.0 * std::sqrt(2.0 * degrees));
    }
}

TEST_CASE("permute: every position reaches every window about equally often, and neighbors part") {
    const std::int64_t size = 37;
    std::vector<int> first(size, 0);
    std::vector<int> step(size, 0);
    const int draws = 37000;
    for (int seed = 0; seed < draws; ++seed) {
        const std::int64_t a = permute(static_cast<std::uint64_t>(seed), 0, size, 10);
        const std::int64_t b = permute(static_cast<std::uint64_t>(seed), 0, size, 11);
        ++first[a];
        ++step[(b - a + size) % size];
    }
    CHECK(step[0] == 0);
    double chi_first = 0.0;
    double chi_step = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
        chi_first += (first[i] - 1000.0) * (first[i] - 1000.0) / 1000.0;
        const double expected = draws / 36.0;
        if (i > 0) chi_step += (step[i] - expected) * (step[i] - expected) / expected;
    }
    CHECK(chi_first < 36 + 5 * std::sqrt(72.0));
    CHECK(chi_step < 35 + 5 * std::sqrt(70.0));
}

TEST_CASE("sampler: an epoch visits steps * global_batch different windows, other ones next time") {
    const Sampler sampler({.num_windows = 103, .global_batch = 10, .seed = 4});
    CHECK(sampler.steps_per_epoch() == 10);
    std::set<std::int64_t> left_out[2];
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        for (std::int64_t window = 0; window < 103; ++window)
            left_out[epoch].insert(window);
        for (std::int64_t step = 10 * epoch; step < 10 * (epoch + 1); ++step) {
            CHECK(sampler.epoch_of(step) == epoch);
            for (std::int64_t k = 0; k < 10; ++k)
                left_out[epoch].erase(sampler.window(step, k));
        }
        CHECK(left_out[epoch].size() == 3);
    }
    CHECK(left_out[0] != left_out[1]);
    CHECK(sampler.sample_index(7, 3) == 73);
}

TEST_CASE("sampler: unshuffled it is the order of the stream, in every epoch") {
    const Sampler sampler({.num_windows = 11, .global_batch = 2, .seed = 4, .shuffle = false});
    CHECK(sampler.steps_per_epoch() == 5);
    for (std::int64_t step = 0; step < 15; ++step) {
        CHECK(sampler.window(step, 0) == 2 * (step % 5));
        CHECK(sampler.window(step, 1) == 2 * (step % 5) + 1);
    }
}

TEST_CASE("sampler: impossible numbers are refused") {
    CHECK(contains(error_of([] { Sampler({.num_windows = 3, .global_batch = 4}); }),
                   "3 windows are fewer than one global batch of 4"));
    CHECK(contains(error_of([] { Sampler({.num_windows = 3, .global_batch = 0}); }),
                   "global_batch = 0, at least 1"));
    const Sampler sampler({.num_windows = 4, .global_batch = 2});
    CHECK(contains(error_of([&] { sampler.window(0, 2); }), "sample 2 of a global batch of 2"));
    CHECK(contains(error_of([&] { sampler.window(-1, 0); }), "step -1"));
    CHECK(contains(error_of([] { permute(0, 0, 4, 4); }), "position 4 is outside [0, 4)"));
}
