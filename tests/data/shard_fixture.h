// Shards with known contents, and their errors as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/shard_writer.h"
#include "engine/core/check.h"

namespace ingot::test {

// A file of tests/cases.
std::string case_file(const std::string& name);

// Ids 3, 10, 17, ... modulo vocab_size: different for every position of a small shard.
std::vector<std::int64_t> counting_ids(std::int64_t count, std::int64_t vocab_size = 1000);

// Random ids, the same for equal arguments.
std::vector<std::int64_t> random_ids(std::int64_t count,
                                     std::int64_t vocab_size,
                                     std::uint64_t seed);

// A header for write_token_shard; the tokenizer's hash is 32 times `tokenizer`.
ShardHeader shard_facts(std::int64_t vocab_size, std::uint8_t tokenizer = 7);

// All tokens of a shard.
std::vector<std::int64_t> read_all(const TokenShard& shard);

// "code: message" of the Error that f throws; "no error" when it throws none.
template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const Error& error) {
        return std::string(error.code()) + ": " + error.what();
    }
    return "no error";
}

bool contains(const std::string& text, const std::string& part);

}  // namespace ingot::test
