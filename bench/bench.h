// The harness of the kernel benchmarks. A Case says what an op moves and computes and how to call
// it; the harness measures it on a CPU or CUDA context and relates it to the roof of the machine,
// measured in the same run.
//
//   one sample   = a batch of calls between two events, long enough for the clock, over input sets
//                  that together exceed the last-level cache, so that a call finds its inputs in
//                  memory as it does in a training step; where even many sets are too small for
//                  that, single calls, each after other data has been read through the cache; the
//                  time of such a call contains that of an event
//   time         = the median of the samples; spread = (3rd - 1st quartile) / median
//   roof time    = max(bytes / copy bandwidth, flops / matmul rate of the dtype)
//   % of roof    = 100 * roof time / time
//   library      = the best library's time for the same work, measured right after ours: on a
//                  context of its own, where no matmul algorithm was chosen by timing. What PyTorch
//                  alone has (LayerNorm, cross entropy, AdamW, ...) is timed by
//                  bench/torch_kernels.py; tools/gpu_check.sh kernels puts it into these rows
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/device.h"

namespace ingot::bench {

// `count` uniform ids in [0, limit), the same in every call.
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t limit);
// As in text: about 1 / (id + 1) of them are `id` (Zipf's law), so 6 % are id 0 when limit is
// 50257.
std::vector<std::int32_t> zipf_ids(std::int64_t count, std::int64_t limit);
// How many different ones are among them.
std::int64_t num_distinct(std::vector<std::int32_t> ids);

// Memory of one input set, on one device.
class Inputs {
  public:
    explicit Inputs(Context& context) : context_(&context) {}

    Context& context() const { return *context_; }
    Device device() const { return context_->device(); }
    // Values in [low, high), the same in every set.
    Tensor values(DType dtype,
                  std::initializer_list<std::int64_t> dims,
                  float low = -1.0F,
                  float high = 1.0F);
    Tensor ids(std::initializer_list<std::int64_t> dims, std::int64_t limit);  // random_ids()
    Tensor token_order(const std::vector<std::int32_t>& ids);                  // (n, 2)
    Tensor exactly(const std::vector<float>& values);                          // (n) f32
    Tensor space(DType dtype, std::initializer_list<std::int64_t> dims);       // zeros
    Tensor scratch(std::int64_t size_bytes) { return space(DType::u8, {size_bytes}); }
    std::int64_t size_bytes() const { return size_bytes_; }

  private:
    Tensor upload(const void* host, std::int64_t host_count, Tensor target);

    Context* context_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::int64_t size_bytes_ = 0;
};

using Call = std::function<void(Stream)>;

// What users would call instead of the engine's op.
struct Library {
    std::string name;                   // "cuBLASLt heuristic"; empty: no library has the op
    std::function<Call(Inputs&)> make;  // as in Case, on input sets of its own
};

struct Case {
    std::string op;     // "layernorm_forward"
    std::string shape;  // "65536x768"
    DType dtype;
    double bytes;  // the least an op can move: every element once, read + written
    double flops;  // of the products; 0 for an elementwise op
    std::function<Call(Inputs&)> make;  // allocates one input set and returns the call on it
    Library library{};
    // Each call is timed alone after the flush, as bench/torch_timing.py times PyTorch's: for
    // comparisons of calls long enough that the card's clock depends on what ran before.
    bool is_alone = false;
};

struct Roof {
    double copy_bytes_per_s = 0.0;  // read + written
    double f32_flops_per_s = 0.0;
    double bf16_flops_per_s = 0.0;

    double seconds(const Case& c) const;
};

struct Result {
    double seconds = 0.0;           // median of the samples
    double spread = 0.0;            // quartile distance / median
    std::vector<double> samples{};  // seconds a call, in the order of measuring
    int calls = 0;                  // in a sample
    int input_sets = 0;             // rotated through
    bool is_flushed = false;        // other data went through the cache before each sample
};

// The quantile by linear interpolation between neighbours; q in [0, 1], samples not empty.
double quantile(std::vector<double> samples, double q);

// Measures for about `seconds` after a warm-up over every input set.
Result measure(Context& context, const Case& c, double seconds);

// The same for the case's library; no samples when it has none.
Result measure_library(Context& context, const Case& c, double seconds);

// The copy bandwidth and matmul rates of this device, now.
Roof measure_roof(Context& context, double seconds);

// What one case gave.
struct Measured {
    Result own;
    Result library;  // no samples: none
};

// "op shape dtype device us spread GB/s TFLOP/s %roof library us"
std::string header_line();
std::string line(const Case& c, const Measured& measured, const Roof& roof, Device device);

struct Options {
    std::vector<std::string> filters;  // parts of "op shape dtype", one of which fits; empty: all
    std::string json;                  // file to write; empty: none
    std::string device;                // auto, cpu, cuda
    double seconds = 0.5;              // of measuring a case
    bool is_list = false;              // print the cases and stop
    bool is_describe = false;          // print "NAME, PCI BUS ID" of the device and stop
};

// Runs the cases that pass the filter on the device, prints a line each, writes the JSON.
void run(const Options& options);

}  // namespace ingot::bench
