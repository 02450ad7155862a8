// Where the device's time goes, by name: ranges for a profiler, and the engine's own op profile.
//
// A TraceRange shows in the time line of Nsight Systems (an NVTX range: "block 3 forward"). An
// OpRange does so, too, and is the unit of the op profile: while an OpProfile is attached to the
// Context, each OpRange of the compute stream records an event before and after its work. Events
// are read afterwards, so that nothing waits inside the profiled step. Without a profile an OpRange
// costs one comparison.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/core/device.h"

namespace ingot {

// The least that a call has to move and to compute.
struct OpCost {
    std::int64_t bytes = 0;    // every tensor once, one that is added to twice
    double flops = 0.0;        // of the matrix products, 2 per multiply-add
    DType dtype = DType::f32;  // of the operands
};

// Of those tensors that are no null views.
template <class... Tensors>
std::int64_t bytes_of_tensors(const Tensors&... tensors) {
    return ((tensors ? tensors.size_bytes() : 0) + ... + 0);
}

// All calls of one op.
struct OpPart {
    std::string name;  // of an op within an op: "lm_head_loss/cross_entropy"
    DType dtype = DType::f32;
    std::int64_t calls = 0;
    double ms = 0.0;
    std::int64_t bytes = 0;
    double flops = 0.0;
};

// Records the ops of the compute stream from its construction until stop(); work of the other
// streams runs beside it and is left out. One at a time in a Context.
class OpProfile {
  public:
    explicit OpProfile(Context& context);
    ~OpProfile();
    OpProfile(const OpProfile&) = delete;
    OpProfile& operator=(const OpProfile&) = delete;

    void stop();
    // What was recorded, longest first; waits until the device has done it. An op that calls others
    // is shown by its parts, so that the times add up.
    std::vector<OpPart> parts() const;

  private:
    friend class OpRange;
    struct Entry {
        const char* name;
        OpCost cost;
        int parent;  // index of the op that called this one, or -1
        bool has_parts;
        Event begin, end;
    };
    void begin(Stream stream, const char* name, const OpCost& cost);
    void end(Stream stream) noexcept;
    std::string path_of(const Entry& entry) const;

    Context& context_;
    std::deque<Entry> entries_;
    int open_ = -1;  // the innermost op that has begun and not ended
};

namespace nvtx {
// Names are copied. Defined in a CUDA build only.
void push(const char* name);
void pop() noexcept;
}  // namespace nvtx

// The work enqueued while it lives has this name in a profiler's time line.
class TraceRange {
  public:
    explicit TraceRange([[maybe_unused]] const char* name) {
        if constexpr (kHasCuda) nvtx::push(name);
    }
    explicit TraceRange(const std::string& name) : TraceRange(name.c_str()) {}
    ~TraceRange() {
        if constexpr (kHasCuda) nvtx::pop();
    }
    TraceRange(const TraceRange&) = delete;
    TraceRange& operator=(const TraceRange&) = delete;
};

// Stands at the top of an op's public function, behind its check. `name`: a string literal.
class OpRange {
  public:
    OpRange(Stream stream, const char* name, const OpCost& cost)
        : trace_(name), stream_(stream), profile_(stream.context().op_profile()) {
        if (profile_ != nullptr) profile_->begin(stream, name, cost);
    }
    ~OpRange() {
        if (profile_ != nullptr) profile_->end(stream_);
    }
    OpRange(const OpRange&) = delete;
    OpRange& operator=(const OpRange&) = delete;

  private:
    TraceRange trace_;
    Stream stream_;
    OpProfile* profile_;
};

}  // namespace ingot
