// The positions of a batch in the order of (id, position): what the embedding's backward pass
// walks, so that the rows of one token are neighbours and are added in the order of the batch. The
// host sorts while the device computes. Plain C++17: kernels include it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ingot {

// One row of an order tensor, (number of tokens, 2) i32.
struct TokenEntry {
    std::int32_t position;  // b * T + t
    std::int32_t id;
};
static_assert(sizeof(TokenEntry) == 2 * sizeof(std::int32_t), "lies in a tensor of i32");

// Counting sort: O(count + largest id). Keeps its table from one call to the next.
class TokenSorter {
  public:
    // order: (count, 2). 0 <= ids[i]; count < 2^31.
    void sort(const std::int32_t* ids, std::int64_t count, std::int32_t* order) {
        if (count == 0) return;
        const std::int32_t most = *std::max_element(ids, ids + count);
        places_.assign(static_cast<std::size_t>(most) + 1, 0);
        for (std::int64_t i = 0; i < count; ++i)
            ++places_[static_cast<std::size_t>(ids[i])];
        std::int32_t place = 0;
        for (std::int32_t& entry : places_) {
            const std::int32_t of_id = entry;
            entry = place;
            place += of_id;
        }
        for (std::int64_t i = 0; i < count; ++i) {
            std::int32_t* row =
                order + 2 * std::int64_t{places_[static_cast<std::size_t>(ids[i])]++};
            row[0] = static_cast<std::int32_t>(i);
            row[1] = ids[i];
        }
    }

  private:
    std::vector<std::int32_t> places_;  // by id
};

inline std::vector<std::int32_t> token_order(const std::vector<std::int32_t>& ids) {
    std::vector<std::int32_t> order(2 * ids.size());
    TokenSorter().sort(ids.data(), static_cast<std::int64_t>(ids.size()), order.data());
    return order;
}

}  // namespace ingot
