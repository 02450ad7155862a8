// The windows of a validation or test set, each exactly once and in order, spread over ranks. The
// last batches may have fewer rows than B, or none; every rank gets the same number of batches, so
// collectives match. Rows that do not exist have masked targets: a loss that sums over the batch
// and divides by the valid targets of all ranks is right with or without looking at `rows`.
// Errors: loader.config, data.too_short (not one window).
#pragma once

#include <cstdint>
#include <vector>

#include "data/token_set.h"
#include "engine/core/tensor.h"

namespace ingot {

// The target of a position that does not count; the value of kernels/cross_entropy.h.
inline constexpr std::int32_t kNoTarget = -100;

struct EvaluationConfig {
    std::int64_t seq_len = 0;      // T
    std::int64_t micro_batch = 1;  // B
    int rank = 0;
    int world_size = 1;
    std::int64_t max_batches = 0;  // per rank; 0: all windows
    Tensor memory;                 // (2 * B * T) i32 on the host, for pinned memory; null: own
};

struct EvaluationBatch {
    ConstTensor inputs;     // (B, T) i32; a row that does not exist repeats the set's first window
    ConstTensor targets;    // (B, T) i32, kNoTarget in rows that do not exist
    std::int64_t rows = 0;  // 0..B that exist
    std::int64_t valid_targets = 0;  // rows * T
};

class EvaluationBatches {
  public:
    // `set` outlives this.
    EvaluationBatches(const TokenSet& set, const EvaluationConfig& config);

    std::int64_t num_batches() const { return num_batches_; }  // the same on every rank
    std::int64_t num_windows() const { return num_windows_; }  // that all ranks together use
    // Batch `index` < num_batches(). Valid until the next call. Row b of rank r is window
    // (index * world_size + r) * B + b.
    EvaluationBatch read(std::int64_t index);

  private:
    const TokenSet& set_;
    EvaluationConfig config_;
    std::int64_t num_windows_ = 0;
    std::int64_t num_batches_ = 0;
    std::vector<std::int32_t> own_memory_;
    std::vector<std::int32_t> window_;  // T + 1 ids
};

}  // namespace ingot
