#include "engine/train/batch_feeder.h"

namespace ingot {

ArenaPlan BatchFeeder::plan(std::int64_t B, std::int64_t T) {
    ArenaPlan plan("training batches");
    plan.add("ids", DType::i32, {kSlots, kBatchFields, B, T});
    plan.place();
    return plan;
}

BatchFeeder::BatchFeeder(Context& context, Loader& loader, std::int64_t B, std::int64_t T)
    : context_(context), loader_(loader), B_(B), T_(T), arena_(context, plan(B, T)) {
    for (int i = 0; i < kSlots; ++i) {
        copied_.emplace_back(context);
        released_.emplace_back(context);
    }
}

DeviceBatch BatchFeeder::next(Stream stream) {
    DeviceBatch batch;
    batch.slot = static_cast<int>(num_batches_++ % kSlots);
    Event& copied = copied_[static_cast<std::size_t>(batch.slot)];
    // The loader may reuse the host memory of the batch that was in this slot: it must have been
    // copied. That was a batch ago, so this does not stall.
    copied.synchronize();
    batch.host = loader_.next();

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
