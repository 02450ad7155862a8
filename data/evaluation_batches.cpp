#include "data/evaluation_batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/core/check.h"

namespace ingot {
namespace {

void check(const EvaluationConfig& c) {
    ENSURE(c.seq_len >= 1 && c.micro_batch >= 1, "loader.config",
           "evaluation: seq_len = ", c.seq_len, ", micro_batch = ", c.micro_batch,
           "; both must be at least 1");
    ENSURE(c.world_size >= 1 && c.rank >= 0 && c.rank < c.world_size, "loader.config",
           "evaluation: rank = ", c.rank, ", allowed 0..", c.world_size - 1);
    ENSURE(c.max_batches >= 0, "loader.config", "evaluation: max_batches = ", c.max_batches,
           ", at least 0 is needed (0: all)");
    if (!c.memory) return;
    const std::int64_t needed = 2 * c.micro_batch * c.seq_len;
    ENSURE(c.memory.dtype == DType::i32 && c.memory.device == Device::cpu &&
               c.memory.numel() >= needed,
           "loader.config", "evaluation: memory is ", c.memory.shape_string(), " on ",
           name_of(c.memory.device), ", needed are ", needed, " i32 on the host");
}

}  // namespace

EvaluationBatches::EvaluationBatches(const TokenSet& set, const EvaluationConfig& config)
    : set_(set), config_(config) {
    check(config);
    const std::int64_t all_windows = set.num_windows(config.seq_len);
    ENSURE(all_windows >= 1, "data.too_short", "data.", set.config().role, ": ", set.description(),
           ": not one window of ", config.seq_len, " tokens; ", config.seq_len + 1,
           " tokens are needed: give more data, or lower train.seq_len");
    const std::int64_t rows = config.micro_batch * config.world_size;
    num_batches_ = (all_windows + rows - 1) / rows;
    if (config.max_batches > 0) num_batches_ = std::min(num_batches_, config.max_batches);
    num_windows_ = std::min(all_windows, num_batches_ * rows);
    if (!config.memory) {
        own_memory_.resize(static_cast<std::size_t>(2 * config.micro_batch * config.seq_len));
    }
    window_.resize(static_cast<std::size_t>(config.seq_len + 1));
}

EvaluationBatch EvaluationBatches::read(std::int64_t index) {
    ENSURE(index >= 0 && index < num_batches_, "loader.config", "evaluation: batch ", index,
           " was asked for, there are ", num_batches_);
    const std::int64_t B = config_.micro_batch;
    const std::int64_t T = config_.seq_len;
    std::int32_t* inputs = config_.memory ? config_.memory.ptr<std::int32_t>() : own_memory_.data();
    std::int32_t* targets = inputs + B * T;
    const std::int64_t first = (index * config_.world_size + config_.rank) * B;

    EvaluationBatch batch;
    batch.rows = std::clamp<std::int64_t>(num_windows_ - first, 0, B);
    batch.valid_targets = batch.rows * T;
    for (std::int64_t b = 0; b < B; ++b) {
        const bool exists = b < batch.rows;
        set_.read(exists ? (first + b) * T : 0, T + 1, window_.data());
        std::copy_n(window_.data(), T, inputs + b * T);
        if (exists) {
            std::copy_n(window_.data() + 1, T, targets + b * T);
        } else {
            std::fill_n(targets + b * T, T, kNoTarget);
        }
    }
    batch.inputs = make_tensor(std::as_const(inputs), DType::i32, {B, T}, Device::cpu);
    batch.targets = make_tensor(std::as_const(targets), DType::i32, {B, T}, Device::cpu);
    return batch;
}

}  // namespace ingot
