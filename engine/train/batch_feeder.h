// Brings the loader's batches to the device: copies on the copy stream into two device slots, so
// that the copy of the next batch runs beside the computation of this one. Events, not the host,
// keep the slots apart.
#pragma once

#include <deque>

#include "data/loader.h"
#include "engine/core/arena.h"

namespace ingot {

struct DeviceBatch {
    ConstTensor inputs;   // (B, T) i32 on the device
    ConstTensor targets;  // (B, T) i32 on the device
    ConstTensor order;    // (B * T, 2) i32 on the device
    Batch host;           // facts about it: step, valid_targets, token_hash, wait_ms
    int slot = 0;
};

class BatchFeeder {
  public:
    static constexpr int kSlots = 2;
    static ArenaPlan plan(std::int64_t B, std::int64_t T);

    // `loader` outlives the feeder and must keep a batch valid for kSlots further calls
    // (LoaderConfig::held >= kSlots).
    BatchFeeder(Context& context, Loader& loader, std::int64_t B, std::int64_t T);

    // The next batch; work on `stream` after this call sees it.
    DeviceBatch next(Stream stream);
    // Work that reads the batch has been enqueued on `stream`: its slot may be filled again after.
    void release(Stream stream, const DeviceBatch& batch);
    // (kBatchFields, B, T) i32 on the device; the warm-up may use it before the first batch.
    Tensor memory(int slot) const;

  private:
    Context& context_;
    Loader& loader_;
    std::int64_t B_, T_;
    Arena arena_;
    std::deque<Event> copied_;    // one a slot
    std::deque<Event> released_;  // one a slot
    std::int64_t num_batches_ = 0;
};

}  // namespace ingot
