// A file of token ids, memory-mapped: Ingot's own shards (docs/formats.md, "Token shards") and
// llm.c's (256 int32 {magic, version, count}: 20240520/1 holds 16-bit ids, 20240801/7 32-bit ids).
//
// Everything the header says is checked against the file's size when it is opened, and the size
// again with every read. All methods are thread safe.
// Errors: shard.open, shard.size, shard.magic, shard.version, shard.header, shard.truncated,
// shard.io, shard.index.
#pragma once

#include <cstdint>
#include <string>

#include "data/mapped_file.h"
#include "data/sha256.h"

namespace ingot {

enum class Split : std::uint32_t { train = 0, validation = 1, test = 2 };

const char* name_of(Split split);

struct ShardHeader {
    std::int64_t token_bytes = 2;  // 2 or 4
    std::int64_t num_tokens = 0;
    std::int64_t num_documents = 0;
    std::int64_t vocab_size = 0;  // 0: unknown (llm.c)
    std::int64_t eos_id = -1;     // -1: none
    Split split = Split::train;
    std::int64_t shard_index = 0;
    std::int64_t tokens_offset = 4096;  // bytes
    std::int64_t index_offset = 4096;   // bytes; 0: no index (llm.c)
    Sha256Digest tokenizer_sha256{};    // zeros: unknown

    bool knows_tokenizer() const { return tokenizer_sha256 != Sha256Digest{}; }
};

class TokenShard {
  public:
    explicit TokenShard(const std::string& path);

    const std::string& path() const { return file_.path(); }
    const ShardHeader& header() const { return header_; }
    std::int64_t num_tokens() const { return header_.num_tokens; }
    FileId file_id() const { return file_.id(); }

    // out[i] = token begin + i, for i < count. An id of 2^31 or more comes out negative.
    void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
    // The highest id of [begin, begin + count); -1 when count is 0.
    std::int64_t max_id(std::int64_t begin, std::int64_t count) const;
    // First token of document `index`, counted from the first token of this file.
    std::int64_t document_start(std::int64_t index) const;
    // XXH64 over the number of tokens and samples of the tokens (the first, the last and 62 blocks
    // between them). Equal tokens give equal fingerprints, whatever their width and header.
    std::uint64_t fingerprint() const;

  private:
    void check_range(std::int64_t begin, std::int64_t count) const;

    MappedFile file_;
    ShardHeader header_;
};

// True when both hold the same tokens. Reads both only when their fingerprints agree.
bool same_tokens(const TokenShard& a, const TokenShard& b);

}  // namespace ingot
