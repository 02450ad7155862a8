#include "engine/train/batch_feeder.h"

#include <algorithm>

namespace ingot {

LoaderConfig hold_batches(LoaderConfig loader, std::int64_t lag) {
    const std::int64_t micro_steps = loader.global_batch / (loader.micro_batch * loader.world_size);
    loader.held = (lag + 1) * micro_steps;
    loader.prefetch = std::max(loader.prefetch, lag * micro_steps);
    return loader;
}

ArenaPlan BatchFeeder::plan(std::int64_t B, std::int64_t T) {
    ArenaPlan plan("training batches");
    plan.add("ids", DType::i32, {kSlots, kBatchFields, B, T});
    plan.place();
    return plan;
}

BatchFeeder::BatchFeeder(Context& context, Loader& loader, std::int64_t B, std::int64_t T)
    : context_(context), loader_(loader), B_(B), T_(T), arena_(context, plan(B, T)) {
    for (std::int64_t i = 0; i < loader.held(); ++i)
        copied_.emplace_back(context);
    for (int i = 0; i < kSlots; ++i)
        released_.emplace_back(context);
}

DeviceBatch BatchFeeder::next(Stream stream) {
    DeviceBatch batch;
    const std::int64_t held = loader_.held();
    Event& copied = copied_[static_cast<std::size_t>(num_batches_ % held)];
    ENSURE(copied.is_complete(), "feeder.pending_copy", "batch ", num_batches_,
           ": the loader holds ", held, " batches and would reuse the memory of batch ",
           num_batches_ - held,
           ", which is still being copied to the device; hold more batches, or wait for a result "
           "of that batch first");
    batch.slot = static_cast<int>(num_batches_ % kSlots);
    batch.host = loader_.next();
    ++num_batches_;

    const Tensor fields = memory(batch.slot);
    const Tensor inputs = fields.slice(0, 1).view({B_, T_});
    const Tensor targets = fields.slice(1, 2).view({B_, T_});
    const Tensor order = fields.slice(2, 4).view({B_ * T_, 2});
    const Stream copy_stream = context_.copy_stream();
    copy_stream.wait(released_[static_cast<std::size_t>(batch.slot)]);
    copy(copy_stream, inputs, batch.host.inputs);
    copy(copy_stream, targets, batch.host.targets);
    copy(copy_stream, order, batch.host.order);
    copy_stream.record(copied);
    stream.wait(copied);
    batch.inputs = inputs;
    batch.targets = targets;
    batch.order = order;
    return batch;
}

Tensor BatchFeeder::memory(int slot) const {
    return arena_.tensor(0).slice(slot, slot + 1).view({kBatchFields, B_, T_});
}

void BatchFeeder::release(Stream stream, const DeviceBatch& batch) {
    stream.record(released_[static_cast<std::size_t>(batch.slot)]);
}

}  // namespace ingot
