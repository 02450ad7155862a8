// Goal: the token hash is XXH64 as documented, of ids and their number in the run. Method: known
// answers from a second implementation, written from the specification of XXH64 in Python.
#include <doctest/doctest.h>

#include "data/token_hash.h"

using namespace ingot;

TEST_CASE("token hash: XXH64 of the ids as little-endian int32, seeded with the sample's number") {
    CHECK(sample_hash(nullptr, 0, 0) == 0xef46db3751d8e999ULL);  // XXH64 of nothing
    const std::int32_t ids[] = {3, 10, 17, 24, 70000};
    CHECK(sample_hash(ids, 5, 0) == 0x558c7e9ad0d7f6f3ULL);
    CHECK(sample_hash(ids, 5, 1) == 0x7c42ce0fc4f140d9ULL);
    CHECK(sample_hash(ids, 4, 0) != sample_hash(ids, 5, 0));
}

TEST_CASE("token hash: the chain depends on every step and on their order") {
    CHECK(chain_token_hash(0, 5) == 0xd8ae5c191d4d0413ULL);
    CHECK(chain_token_hash(chain_token_hash(0, 1), 2) !=
          chain_token_hash(chain_token_hash(0, 2), 1));
    CHECK(chain_token_hash(0, 0) != 0);
}
