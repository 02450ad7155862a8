// Which window is sample k of a step: a function of (seed, step, k) alone, not of ranks, workers or
// micro-batches, and without a table. Pure arithmetic.
//
// An epoch has floor(num_windows / global_batch) steps. Position p of epoch e is window
// permutation_e(p), a keyed bijection of [0, num_windows); unshuffled it is p. The windows behind
// the last whole step of an epoch are left out, with shuffling other ones in every epoch.
//
// The bijection is a Feistel network over the next even number of bits with Philox as its round
// function; a value outside [0, num_windows) is mapped again until it falls inside ("cycle
// walking"; Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
#pragma once

#include <cstdint>

namespace ingot {

// The image of `position` under the permutation of [0, size) keyed by (seed, epoch).
std::int64_t permute(std::uint64_t seed,
                     std::int64_t epoch,
                     std::int64_t size,
                     std::int64_t position);

struct SamplerConfig {
    std::int64_t num_windows = 0;
    std::int64_t global_batch = 1;  // samples a step, over all ranks
    std::uint64_t seed = 0;
    bool shuffle = true;
};

class Sampler {
  public:
    // Needs num_windows >= global_batch >= 1 (sampler.config).
    explicit Sampler(const SamplerConfig& config);

    std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
    std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch_; }
    // Sample k < global_batch of step >= 0, counted from the start of the run.
    std::int64_t window(std::int64_t step, std::int64_t k) const;
    // The number of this sample in the run; the seed of its token hash.
    std::int64_t sample_index(std::int64_t step, std::int64_t k) const {
        return step * config_.global_batch + k;
    }

  private:
    SamplerConfig config_;
    std::int64_t steps_per_epoch_;
};

}  // namespace ingot
