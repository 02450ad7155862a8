// The token hash proves that two runs saw the same data, in the same steps. A step's hash is the
// sum mod 2^64 over its samples of XXH64(the window's T + 1 ids as little-endian int32, seed =
// number of the sample in the run), so it does not depend on how samples are spread over ranks and
// micro-batches: add the batches' sums of all ranks. Steps are chained in order.
#pragma once

#include <cstdint>

namespace ingot {

std::uint64_t sample_hash(const std::int32_t* tokens, std::int64_t count, std::int64_t sample);

// The run's hash after a step: XXH64 of (run's hash before, sum of the step). A run starts with 0.
std::uint64_t chain_token_hash(std::uint64_t run_hash, std::uint64_t step_sum);

}  // namespace ingot
