// Writes token shards (docs/formats.md). Data sets are made by tools/prepare_data.py; this serves
// tests and benchmarks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_shard.h"

namespace ingot {

// The 4096 bytes in front of the tokens.
std::vector<unsigned char> encode_shard_header(const ShardHeader& header);

// `header` gives token_bytes, vocab_size, eos_id, split, shard_index and the tokenizer's hash; the
// counts and offsets follow from the contents. Throws shard.write.
void write_token_shard(const std::string& path,
                       ShardHeader header,
                       const std::vector<std::int64_t>& tokens,
                       const std::vector<std::int64_t>& document_starts = {});

// llm.c's layout with ids of token_bytes 2 or 4.
void write_llmc_shard(const std::string& path,
                      std::int64_t token_bytes,
                      const std::vector<std::int64_t>& tokens);

}  // namespace ingot
