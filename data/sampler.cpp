#include "data/sampler.h"

#include <algorithm>
#include <bit>

#include "engine/core/check.h"
#include "engine/core/rng.h"

namespace ingot {
namespace {

// Eight rounds: four already give a pseudo-random permutation of large domains (Luby and Rackoff,
// "How to construct pseudorandom permutations from pseudorandom functions", 1988); small domains
// need some more to lose their bias.
constexpr std::uint64_t kFeistelRounds = 8;

}  // namespace

std::int64_t permute(std::uint64_t seed,
                     std::int64_t epoch,
                     std::int64_t size,
                     std::int64_t position) {
    ENSURE(position >= 0 && position < size, "sampler.config", "permute: position ", position,
           " is outside [0, ", size, ")");
    const int size_bits = std::bit_width(static_cast<std::uint64_t>(size - 1));
    const int half_bits = std::max(1, (size_bits + 1) / 2);
    const std::uint64_t half_mask = (std::uint64_t{1} << half_bits) - 1;
    const std::uint64_t stream =
        random_stream(RandomUse::shuffle, static_cast<std::uint64_t>(epoch));

    std::uint64_t value = static_cast<std::uint64_t>(position);
    do {  // the domain has at most 4 * size values, so this ends after 4 turns on average
        std::uint64_t left = value >> half_bits;
        std::uint64_t right = value & half_mask;
        for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
            const PhiloxBlock draw = philox(seed, stream, (round << 32) | right);
            const std::uint64_t mixed = left ^ (draw.word[0] & half_mask);
            left = right;
            right = mixed;
        }
        value = (left << half_bits) | right;
    } while (value >= static_cast<std::uint64_t>(size));
    return static_cast<std::int64_t>(value);
}

Sampler::Sampler(const SamplerConfig& config) : config_(config) {
    ENSURE(config.global_batch >= 1, "sampler.config",
           "sampler: global_batch = ", config.global_batch, ", at least 1 is needed");
    ENSURE(config.num_windows >= config.global_batch, "sampler.config",
           "sampler: ", config.num_windows, " windows are fewer than one global batch of ",
           config.global_batch);
    steps_per_epoch_ = config.num_windows / config.global_batch;
}

std::int64_t Sampler::window(std::int64_t step, std::int64_t k) const {
    ENSURE(step >= 0 && k >= 0 && k < config_.global_batch, "sampler.config", "sampler: step ",
           step, ", sample ", k, " of a global batch of ", config_.global_batch);
    const std::int64_t position = (step % steps_per_epoch_) * config_.global_batch + k;
    if (!config_.shuffle) return position;
    return permute(config_.seed, epoch_of(step), config_.num_windows, position);
}

}  // namespace ingot
