#include "data/loader.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/token_hash.h"
#include "engine/core/check.h"
#include "engine/core/token_order.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

void check(const LoaderConfig& c) {
    ENSURE(c.seq_len >= 1 && c.micro_batch >= 1, "loader.config", "loader: seq_len = ", c.seq_len,
           ", micro_batch = ", c.micro_batch, "; both must be at least 1");
    ENSURE(c.world_size >= 1 && c.rank >= 0 && c.rank < c.world_size, "loader.config",
           "loader: rank = ", c.rank, ", allowed 0..", c.world_size - 1);
    const std::int64_t rows = c.micro_batch * c.world_size;
    ENSURE(c.global_batch >= rows && c.global_batch % rows == 0, "loader.config",
           "loader: global_batch = ", c.global_batch, " is not a multiple of micro_batch ",
           c.micro_batch, " x ", c.world_size, " ranks = ", rows);
    ENSURE(c.workers >= 0 && c.prefetch >= 1 && c.held >= 1, "loader.config",
           "loader: workers = ", c.workers, " (at least 0), prefetch = ", c.prefetch,
           " and held = ", c.held, " (at least 1)");
    if (!c.memory) return;
    ENSURE(c.memory.dtype == DType::i32 && c.memory.device == Device::cpu &&
               c.memory.numel() >= loader_memory_numel(c),
           "loader.config", "loader: memory is ", c.memory.shape_string(), " on ",
           name_of(c.memory.device), ", needed are ", loader_memory_numel(c), " i32 on the host");
}

SamplerConfig sampler_config(const TokenSet& set, const LoaderConfig& c) {
    const std::int64_t windows = set.num_windows(c.seq_len);
    ENSURE(windows >= c.global_batch, "data.too_short", "data.", set.config().role, ": ",
           set.description(), ": ", windows, " windows of ", c.seq_len,
           " tokens are fewer than one global batch of ", c.global_batch, "; ",
           c.global_batch * c.seq_len + 1,
           " tokens are needed: give more data, or lower "
           "train.global_batch or train.seq_len");
    return {.num_windows = windows,
            .global_batch = c.global_batch,
            .seed = c.seed,
            .shuffle = c.shuffle};
}

}  // namespace

std::int64_t loader_memory_numel(const LoaderConfig& config) {
    return (config.prefetch + config.held) * kBatchFields * config.micro_batch * config.seq_len;
}

// Batches are numbered: unit = step * grad_accum_steps + micro_step. Unit u lives in slot
// u % slots. The consumer owns the last `held` units it took; workers fill the `prefetch` units
// from next_unit_ on, each claiming the lowest unclaimed one.
class Loader::Impl {
  public:
    Impl(const TokenSet& set, const LoaderConfig& config)
        : set_(set), config_(config), sampler_((check(config), sampler_config(set, config))) {
        grad_accum_steps_ = config.global_batch / (config.micro_batch * config.world_size);
        slots_.resize(static_cast<std::size_t>(config.prefetch + config.held));
        if (!config.memory) {
            own_memory_.resize(static_cast<std::size_t>(loader_memory_numel(config)));
        }
        std::int32_t* memory =
            config.memory ? config.memory.ptr<std::int32_t>() : own_memory_.data();
        for (Slot& slot : slots_) {
            slot.inputs = memory;
            slot.targets = memory + config.micro_batch * config.seq_len;
            slot.order = memory + 2 * config.micro_batch * config.seq_len;
            memory += kBatchFields * config.micro_batch * config.seq_len;
        }
        start_workers();
    }

    ~Impl() { stop_workers(); }

    Batch next() {
        const Clock::time_point begin = Clock::now();
        Slot& slot = slot_of(next_unit_);
        if (workers_.empty()) {
            fill(next_unit_, slot, scratch_);
        } else {
            std::unique_lock<std::mutex> lock(mutex_);
            filled_.wait(lock, [&] { return slot.unit == next_unit_ || error_; });
            if (error_) std::rethrow_exception(error_);
        }
        Batch batch = slot.batch;
        batch.wait_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ++next_unit_;
        }
        may_fill_.notify_one();
        return batch;
    }

    void seek(std::int64_t step) {
        ENSURE(step >= 0, "loader.config", "loader: cannot go to step ", step);
        {
            std::unique_lock<std::mutex> lock(mutex_);
            seeking_ = true;
            filled_.wait(lock, [&] { return units_being_filled_ == 0; });
            seeking_ = false;
            next_unit_ = step * grad_accum_steps_;
            next_claim_ = next_unit_;
            error_ = nullptr;
            for (Slot& slot : slots_)
                slot.unit = -1;
        }
        may_fill_.notify_all();
    }

    std::int64_t step() const { return next_unit_ / grad_accum_steps_; }
    std::int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
    std::int64_t grad_accum_steps() const { return grad_accum_steps_; }
    std::int64_t held() const { return config_.held; }

  private:
    void start_workers() {
        try {
            for (int i = 0; i < config_.workers; ++i)
                workers_.emplace_back([this] { work(); });
        } catch (const std::system_error& error) {
            stop_workers();  // those that did start
            fail("loader.config", "loader: cannot start ", config_.workers,
                 " threads: ", error.what(), "; lower data.workers");
        }
    }

    void stop_workers() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        may_fill_.notify_all();
    }

    struct Slot {
        std::int32_t* inputs = nullptr;   // (B, T)
        std::int32_t* targets = nullptr;  // (B, T)
        std::int32_t* order = nullptr;    // (B * T, 2)
        std::int64_t unit = -1;           // what it holds; -1: nothing yet
        Batch batch;
    };

    Slot& slot_of(std::int64_t unit) {
        return slots_[static_cast<std::size_t>(unit) % slots_.size()];
    }

    // What a thread keeps from one batch to the next.
    struct Scratch {
        std::vector<std::int32_t> window;  // T + 1 ids
        TokenSorter sorter;
    };

    void fill(std::int64_t unit, Slot& slot, Scratch& scratch) const {
        std::vector<std::int32_t>& window = scratch.window;
        const std::int64_t B = config_.micro_batch;
        const std::int64_t T = config_.seq_len;
        window.resize(static_cast<std::size_t>(T + 1));
        Batch batch;
        batch.step = unit / grad_accum_steps_;
        batch.micro_step = unit % grad_accum_steps_;
        batch.epoch = sampler_.epoch_of(batch.step);
        batch.inputs = make_tensor(std::as_const(slot.inputs), DType::i32, {B, T}, Device::cpu);
        batch.targets = make_tensor(std::as_const(slot.targets), DType::i32, {B, T}, Device::cpu);
        batch.valid_targets = B * T;
        const std::size_t row_bytes = static_cast<std::size_t>(T) * sizeof(std::int32_t);
        for (std::int64_t b = 0; b < B; ++b) {
            const std::int64_t k = (batch.micro_step * config_.world_size + config_.rank) * B + b;
            set_.read(sampler_.window(batch.step, k) * T, T + 1, window.data());
            std::memcpy(slot.inputs + b * T, window.data(), row_bytes);
            std::memcpy(slot.targets + b * T, window.data() + 1, row_bytes);
            batch.token_hash +=
                sample_hash(window.data(), T + 1, sampler_.sample_index(batch.step, k));
        }
        scratch.sorter.sort(slot.inputs, B * T, slot.order);
        batch.order = make_tensor(std::as_const(slot.order), DType::i32, {B * T, 2}, Device::cpu);
        slot.batch = batch;
    }

    void work() {
        Scratch scratch;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            may_fill_.wait(lock, [&] {
                return stopping_ || (!seeking_ && next_claim_ < next_unit_ + config_.prefetch);
            });
            if (stopping_) return;
            const std::int64_t unit = next_claim_++;
            ++units_being_filled_;
            Slot& slot = slot_of(unit);
            lock.unlock();
            std::exception_ptr error;
            try {
                fill(unit, slot, scratch);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            if (error && !error_) error_ = error;
            if (!error) slot.unit = unit;
            --units_being_filled_;
            filled_.notify_all();
        }
    }

    const TokenSet& set_;
    const LoaderConfig config_;
    const Sampler sampler_;
    std::int64_t grad_accum_steps_ = 1;
    std::vector<std::int32_t> own_memory_;
    Scratch scratch_;  // of next() without workers
    std::vector<Slot> slots_;

    std::mutex mutex_;  // of what follows, and of Slot::unit
    std::condition_variable may_fill_;
    std::condition_variable filled_;
    std::int64_t next_unit_ = 0;   // the consumer's next; written by the consumer alone
    std::int64_t next_claim_ = 0;  // the workers' next
    int units_being_filled_ = 0;
    std::exception_ptr error_;  // the first of a worker
    bool seeking_ = false;
    bool stopping_ = false;
    std::vector<std::jthread> workers_;  // last: they end before anything else goes
};

Loader::Loader(const TokenSet& set, const LoaderConfig& config)
    : impl_(std::make_unique<Impl>(set, config)) {}

Loader::~Loader() = default;

Batch Loader::next() {
    return impl_->next();
}

void Loader::seek(std::int64_t step) {
    impl_->seek(step);
}

std::int64_t Loader::step() const {
    return impl_->step();
}

std::int64_t Loader::steps_per_epoch() const {
    return impl_->steps_per_epoch();
}

std::int64_t Loader::grad_accum_steps() const {
    return impl_->grad_accum_steps();
}

std::int64_t Loader::held() const {
    return impl_->held();
}

}  // namespace ingot
