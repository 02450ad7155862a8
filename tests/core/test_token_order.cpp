// Goal: the order of a batch's tokens is the stable sort by id. Method: std::stable_sort; a sorter
// that is used again.
#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "engine/core/token_order.h"
#include "tests/support/compare.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("token order: a stable sort by id, also when the sorter is used again") {
    TokenSorter sorter;
    for (const auto& [count, limit] :
         {std::pair{1, 1}, {1000, 50000}, {5000, 3}, {7, 100}, {0, 1}}) {
        const std::vector<std::int32_t> ids = random_ids("ids", count, limit);
        std::vector<std::int32_t> positions(ids.size());
        std::iota(positions.begin(), positions.end(), 0);
        std::stable_sort(positions.begin(), positions.end(), [&](std::int32_t a, std::int32_t b) {
            return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
        });
        std::vector<std::int32_t> expected;
        for (const std::int32_t p : positions)
            expected.insert(expected.end(), {p, ids[static_cast<std::size_t>(p)]});
        std::vector<std::int32_t> order(2 * ids.size(), -1);
        sorter.sort(ids.data(), count, order.data());
        CHECK(order == expected);
        CHECK(token_order(ids) == expected);
    }
}
