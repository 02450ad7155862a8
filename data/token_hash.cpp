#include "data/token_hash.h"

#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ingot {

static_assert(std::endian::native == std::endian::little,
              "the hash is defined on little-endian ids");

std::uint64_t sample_hash(const std::int32_t* tokens, std::int64_t count, std::int64_t sample) {
    return XXH64(tokens, static_cast<std::size_t>(count) * sizeof(*tokens),
                 static_cast<std::uint64_t>(sample));
}

std::uint64_t chain_token_hash(std::uint64_t run_hash, std::uint64_t step_sum) {
    const std::uint64_t link[2] = {run_hash, step_sum};
    return XXH64(link, sizeof(link), 0);
}

}  // namespace ingot
