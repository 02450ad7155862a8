// Batches for one rank, prepared ahead by background threads.
//
// A step has global_batch samples; rank r takes, in micro-step m, row b, sample
//     k = (m * world_size + r) * micro_batch + b
// so the samples of a step are the same for every number of ranks and every micro-batch. What a
// batch holds depends on (seed, step, micro_step, rank) alone, not on threads or timing.
//
// The whole state is the number of the next step. One thread calls next() and seek().
// Errors: loader.config, data.too_short; next() throws what reading a shard threw in a worker, also
// when that was for a later batch: a run on a broken shard ends at once.
#pragma once

#include <cstdint>
#include <memory>

#include "data/sampler.h"
#include "data/token_set.h"
#include "engine/core/tensor.h"

namespace ingot {

struct LoaderConfig {
    std::int64_t seq_len = 0;       // T
    std::int64_t micro_batch = 1;   // B, rows of a batch
    std::int64_t global_batch = 1;  // samples a step; a multiple of B * world_size
    int rank = 0;
    int world_size = 1;
    std::uint64_t seed = 0;
    bool shuffle = true;
    int workers = 2;            // background threads; 0: next() reads the tokens itself
    std::int64_t prefetch = 4;  // batches prepared ahead; at least 1 with workers
    std::int64_t held = 1;  // a batch stays valid until the held-th call of next() after its own
    // Where batches live, for pinned memory: (loader_memory_numel) i32 on the host. Null: the
    // loader's own.
    Tensor memory;
};

// Elements of LoaderConfig::memory: slots for held and prefetched batches.
std::int64_t loader_memory_numel(const LoaderConfig& config);

// i32 of a batch for each of its tokens: input, target, two of the order.
inline constexpr std::int64_t kBatchFields = 4;

struct Batch {
    ConstTensor inputs;   // (B, T) i32
    ConstTensor targets;  // (B, T) i32
    ConstTensor order;    // (B * T, 2) i32: the inputs as engine/core/token_order.h sorts them
    std::int64_t step = 0;
    std::int64_t micro_step = 0;
    std::int64_t epoch = 0;
    std::int64_t valid_targets = 0;  // targets that count for the loss
    std::uint64_t token_hash = 0;    // sum of sample_hash over the rows
    double wait_ms = 0.0;            // time next() was blocked
};

class Loader {
  public:
    // `set` outlives the loader. Refuses data shorter than one global batch.
    Loader(const TokenSet& set, const LoaderConfig& config);
    ~Loader();

    // Micro-steps 0, 1, ... of a step, then the next step; epochs follow one another without end.
    Batch next();
    // The next batch is micro-step 0 of `step`. Batches handed out become invalid.
    void seek(std::int64_t step);
    std::int64_t step() const;  // of the next batch
    std::int64_t steps_per_epoch() const;
    std::int64_t grad_accum_steps() const;  // micro-steps a step
    std::int64_t held() const;              // LoaderConfig::held

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
