#include "tests/data/shard_fixture.h"

#include "engine/core/rng.h"
#include "tests/support/source_dir.h"

namespace ingot::test {

std::string case_file(const std::string& name) {
    return str(source_dir(), "/tests/cases/", name);
}

std::vector<std::int64_t> counting_ids(std::int64_t count, std::int64_t vocab_size) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < count; ++i)
        ids.push_back((3 + 7 * i) % vocab_size);
    return ids;
}

std::vector<std::int64_t> random_ids(std::int64_t count,
                                     std::int64_t vocab_size,
                                     std::uint64_t seed) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < count; ++i) {
        const PhiloxBlock draw =
            philox(seed, random_stream(RandomUse::test, 0), static_cast<std::uint64_t>(i));
        ids.push_back(draw.word[0] % vocab_size);
    }
    return ids;
}

ShardHeader shard_facts(std::int64_t vocab_size, std::uint8_t tokenizer) {
    ShardHeader header;
    header.vocab_size = vocab_size;
    header.token_bytes = vocab_size <= 65536 ? 2 : 4;
    header.tokenizer_sha256.fill(tokenizer);
    return header;
}

std::vector<std::int64_t> read_all(const TokenShard& shard) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shard.num_tokens()));
    shard.read(0, shard.num_tokens(), ids.data());
    return {ids.begin(), ids.end()};
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace ingot::test
