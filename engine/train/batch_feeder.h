// Brings the loader's batches to the device: copies on the copy stream into two device slots, so
// that the copy of the next batch runs beside the computation of this one. Events, not the host,
// keep the slots apart.
//
// Nor does the host wait before the loader may reuse the memory of a batch: the loader holds so
// many (hold_batches()) that a result the trainer has read says that the batch was copied. That is
// looked at, and refused where it does not hold (docs/adr/0018-host-waits.md).
// Errors: feeder.pending_copy.
#pragma once

#include <cstdint>
#include <deque>

#include "data/loader.h"
#include "engine/core/arena.h"

namespace ingot {

// `loader`, with the batches that a run on one rank holds and prepares when it reads the results of
// a step `lag` steps late, before the update of a later one. While step s is enqueued, the steps up
// to s - lag - 1 are known to be done, so batches of lag + 1 steps are held. The host takes the
// batches of `lag` steps without waiting for the device, so as many are prepared ahead: what next()
// waits for is then a loader slower than the device. Memory: 16 bytes for each token of the steps
// held and prepared.
LoaderConfig hold_batches(LoaderConfig loader, std::int64_t lag);

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

    // `loader` outlives the feeder.
    BatchFeeder(Context& context, Loader& loader, std::int64_t B, std::int64_t T);

    // The next batch; work on `stream` after this call sees it. The caller must know that the batch
    // of loader.held() calls before has been copied, by having waited for work that reads it.
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
    std::deque<Event> copied_;    // one for each batch that the loader holds
    std::deque<Event> released_;  // one a slot
    std::int64_t num_batches_ = 0;
};

}  // namespace ingot
