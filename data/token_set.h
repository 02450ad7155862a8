// All shards that match a glob, as one stream of N tokens in the order of their path names (bytes,
// whatever the locale).
//
// The stream is cut into windows of T tokens. Window i reads tokens [i*T, i*T + T) and predicts
// [i*T + 1, i*T + T + 1): the target of a window's last position is the first token of the next
// window. Windows cross document and shard borders; nothing is padded. There are
// floor((N - 1) / T); the up to T - 1 tokens behind the last target are not used.
//
// A constructed set is sound: its shards agree about their tokenizer, and every id (of this
// process's share of the scan) is below the vocabulary. All methods are thread safe.
// Errors: data.glob, data.scan, data.tokenizer, data.vocab, data.token_id, data.overlap,
// data.seq_len, data.range and those of token_shard.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_shard.h"

namespace ingot {

struct TokenSetConfig {
    std::string files;            // a glob, or one path; ~ is the home folder
    std::string role = "train";   // for messages: the key is data.<role>
    std::int64_t vocab_size = 0;  // the model's; 0: what the shards say
    // Every token is read once when the set is opened, to find ids beyond the vocabulary. Ranks
    // divide this work: a rank scans part `scan_part` of `scan_parts`, and no rank may go on
    // before all have opened their set.
    int scan_part = 0;
    int scan_parts = 1;
    int scan_threads = 0;  // 0: one per core, at most 8
};

class TokenSet {
  public:
    explicit TokenSet(const TokenSetConfig& config);

    const std::vector<TokenShard>& shards() const { return shards_; }
    const TokenSetConfig& config() const { return config_; }
    std::int64_t num_tokens() const { return first_token_.back(); }
    std::int64_t num_windows(std::int64_t seq_len) const;
    std::int64_t vocab_size() const { return shards_[0].header().vocab_size; }  // 0: unknown
    std::int64_t max_id() const { return max_id_; }  // of this process's share of the scan

    // out[i] = token begin + i of the stream. An id beyond the vocabulary is an error here too, so
    // that a shard that is overwritten during the run cannot index past the embedding.
    void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

    std::string description() const;  // "data/train_*.bin (3 shards, 1000 tokens)", for messages

  private:
    void open_shards();
    void check_agreement() const;
    void scan();
    [[noreturn]] void refuse_id(std::int64_t begin, std::int64_t count) const;
    std::size_t shard_of(std::int64_t token) const;
    template <class Visit>
    void for_each_piece(std::int64_t begin, std::int64_t count, Visit&& visit) const;

    TokenSetConfig config_;
    std::vector<TokenShard> shards_;
    std::vector<std::int64_t> first_token_;  // shards + 1: where each starts in the stream, and N
    std::int64_t id_limit_ = 0;              // ids are below this
    std::int64_t max_id_ = -1;
};

// Refuses a validation or test set of another tokenizer than the training set's (data.tokenizer),
// and a shard that is in both: the same file, a link to it, or a copy of its tokens (data.overlap).
void check_separate(const TokenSet& train, const TokenSet& held_out);

// Refuses shards of another tokenizer than the model's, given the SHA-256 of the tokenizer.json the
// model came with (data.tokenizer).
void check_tokenizer(const TokenSet& set,
                     const Sha256Digest& model_tokenizer,
                     const std::string& model_path);

}  // namespace ingot
