#include "bench/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

#include "engine/core/rng.h"
#include "engine/core/token_order.h"
#include "kernels/cast.h"
#include "kernels/global_norm.h"
#include "kernels/matmul.h"

namespace ingot::bench {
namespace {

constexpr std::int64_t kPattern = 1 << 20;  // distinct values of a tensor; larger ones repeat them
constexpr std::int64_t kMaxInputBytes = std::int64_t{1} << 30;
constexpr std::int64_t kCudaFlushBytes = std::int64_t{4} << 30;
constexpr std::int64_t kMaxInputSets = 1024;  // passes every L2 with 256 KiB a set

// How much memory the input sets must cover so that none of them stays in the cache.
std::int64_t cache_bytes(Device device) {
    constexpr std::int64_t kCudaBytes = 128 << 20;  // above the L2 of every GPU so far
    if (device == Device::cuda) return kCudaBytes;
    const std::int64_t level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::max<std::int64_t>(level3, 32 << 20);
}

// Seconds a call, for one sample of `calls` calls that starts with input set `first`.
double sample(Context& context, const std::vector<Call>& sets, int calls, int first) {
    const Stream stream = context.compute_stream();
    Event begin(context);
    Event end(context);
    stream.record(begin);
    for (int i = 0; i < calls; ++i)
        sets[static_cast<std::size_t>(first + i) % sets.size()](stream);
    stream.record(end);
    end.synchronize();
    return Event::elapsed_ms(begin, end) * 1e-3 / calls;
}

// Reads so much other memory that nothing of what was there before is left in the cache, and
// nothing that would have to be written back. On a GPU as much as bench/torch_timing.py: about a
// millisecond.
class Flush {
  public:
    explicit Flush(Context& context) : inputs_(context) {
        const bool is_cuda = context.device() == Device::cuda;
        const std::int64_t bytes = is_cuda ? kCudaFlushBytes : 2 * cache_bytes(context.device());
        const std::int64_t count = bytes / size_of(DType::f32);
        args_ = {.out = inputs_.space(DType::f32, {1}),
                 .scratch = inputs_.scratch(squared_norm_scratch_bytes(context.device(), count)),
                 .inp = inputs_.space(DType::f32, {count}),
                 .accumulate = false};
    }
    void operator()(Stream stream) const { squared_norm(stream, args_); }

  private:
    Inputs inputs_;
    SquaredNorm args_{};
};

std::string fixed(double value, int decimals) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", decimals, value);
    return text;
}

}  // namespace

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t limit) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const double u = philox_uniform(1, random_stream(RandomUse::test, 1), i);
        ids[i] = static_cast<std::int32_t>(u * static_cast<double>(limit));
    }
    return ids;
}

std::vector<std::int32_t> zipf_ids(std::int64_t count, std::int64_t limit) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const double u = philox_uniform(1, random_stream(RandomUse::test, 2), i);
        const double id = std::pow(static_cast<double>(limit + 1), u) - 1.0;
        ids[i] = static_cast<std::int32_t>(std::min(id, static_cast<double>(limit - 1)));
    }
    return ids;
}

std::int64_t num_distinct(std::vector<std::int32_t> ids) {
    std::sort(ids.begin(), ids.end());
    return std::unique(ids.begin(), ids.end()) - ids.begin();
}

Tensor Inputs::space(DType dtype, std::initializer_list<std::int64_t> dims) {
    const Tensor shape = make_tensor(static_cast<void*>(nullptr), dtype, dims, device());
    buffers_.push_back(std::make_unique<Buffer>(*context_, shape.size_bytes(), "bench input"));
    size_bytes_ += shape.size_bytes();
    return buffers_.back()->tensor(dtype, dims);
}

// Fills the target with the host's elements, repeated.
Tensor Inputs::upload(const void* host, std::int64_t host_count, Tensor target) {
    const Stream stream = context_->compute_stream();
    const Tensor flat = target.view({target.numel()});
    for (std::int64_t begin = 0; begin < flat.numel(); begin += host_count) {
        const std::int64_t end = std::min(begin + host_count, flat.numel());
        copy(stream, flat.slice(begin, end),
             make_tensor(host, target.dtype, {end - begin}, Device::cpu));
    }
    stream.synchronize();
    return target;
}

Tensor Inputs::values(DType dtype,
                      std::initializer_list<std::int64_t> dims,
                      float low,
                      float high) {
    const Tensor target = space(dtype, dims);
    const std::int64_t count = std::min(kPattern, std::max<std::int64_t>(target.numel(), 1));
    std::vector<float> pattern(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const double u =
            philox_uniform(1, random_stream(RandomUse::test, 0), static_cast<std::uint64_t>(i));
        pattern[static_cast<std::size_t>(i)] = static_cast<float>(low + u * (high - low));
    }
    if (dtype == DType::f32) return upload(pattern.data(), count, target);
    std::vector<bf16> narrow;
    for (const float value : pattern)
        narrow.push_back(to_bf16(value));
    return upload(narrow.data(), count, target);
}

Tensor Inputs::ids(std::initializer_list<std::int64_t> dims, std::int64_t limit) {
    const Tensor target = space(DType::i32, dims);
    return upload(random_ids(target.numel(), limit).data(), target.numel(), target);
}

Tensor Inputs::token_order(const std::vector<std::int32_t>& ids) {
    const auto count = static_cast<std::int64_t>(ids.size());
    return upload(ingot::token_order(ids).data(), 2 * count, space(DType::i32, {count, 2}));
}

Tensor Inputs::exactly(const std::vector<float>& values) {
    const std::int64_t count = static_cast<std::int64_t>(values.size());
    return upload(values.data(), count, space(DType::f32, {count}));
}

double Roof::seconds(const Case& c) const {
    const double rate = c.dtype == DType::bf16 ? bf16_flops_per_s : f32_flops_per_s;
    return std::max(c.bytes / copy_bytes_per_s, c.flops / rate);
}

double quantile(std::vector<double> samples, double q) {
    ENSURE(!samples.empty(), "bench.samples", "quantile of no samples; measure at least once");
    std::sort(samples.begin(), samples.end());
    const double at = q * static_cast<double>(samples.size() - 1);
    const std::size_t low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, samples.size() - 1);
    return samples[low] + (at - static_cast<double>(low)) * (samples[high] - samples[low]);
}

Result measure(Context& context, const Case& c, double seconds) {
    std::vector<std::unique_ptr<Inputs>> memory;
    std::vector<Call> sets;
    const auto total_bytes = [&] {
        return static_cast<std::int64_t>(sets.size()) * memory[0]->size_bytes();
    };
    do {
        memory.push_back(std::make_unique<Inputs>(context));
        sets.push_back(c.make(*memory.back()));
    } while (static_cast<std::int64_t>(sets.size()) < kMaxInputSets &&
             total_bytes() < 2 * cache_bytes(context.device()) &&
             total_bytes() + memory[0]->size_bytes() <= kMaxInputBytes);

    const int num_sets = static_cast<int>(sets.size());
    const bool is_too_small =
        num_sets == kMaxInputSets && total_bytes() < 2 * cache_bytes(context.device());
    const bool is_flushed = c.is_alone || is_too_small;
    const std::unique_ptr<Flush> flush = is_flushed ? std::make_unique<Flush>(context) : nullptr;
    sample(context, sets, num_sets, 0);  // warm-up
    constexpr double kSampleSeconds = 2e-3;
    const double estimate = sample(context, sets, 1, 0);
    Result result;
    result.input_sets = num_sets;
    result.is_flushed = is_flushed;
    result.calls =
        is_flushed ? 1 : std::clamp(static_cast<int>(kSampleSeconds / estimate), 1, 1000);
    const double wanted =
        seconds / (std::max(estimate, is_flushed ? kSampleSeconds : 0.0) * result.calls);
    const int num_samples = static_cast<int>(std::clamp(wanted, 5.0, 200.0));
    for (int i = 0; i < num_samples; ++i) {
        if (flush) (*flush)(context.compute_stream());
        result.samples.push_back(sample(context, sets, result.calls, i * result.calls));
    }
    result.seconds = quantile(result.samples, 0.5);
    result.spread =
        (quantile(result.samples, 0.75) - quantile(result.samples, 0.25)) / result.seconds;
    return result;
}

Result measure_library(Context& context, const Case& c, double seconds) {
    if (c.library.name.empty()) return {};
    Case library = c;
    library.make = c.library.make;
    return measure(context, library, seconds);
}

Roof measure_roof(Context& context, double seconds) {
    const bool is_cuda = context.device() == Device::cuda;
    const std::int64_t count = is_cuda ? 1 << 28 : 1 << 26;
    const double bytes = 8.0 * static_cast<double>(count);
    // On the CPU copy() is one thread's memmove; the conversion of f32 to f32 uses all threads.
    const auto copy_case = [&](bool is_cast) {
        return Case{.op = "copy",
                    .shape = "",
                    .dtype = DType::f32,
                    .bytes = bytes,
                    .flops = 0.0,
                    .make = [=](Inputs& in) -> Call {
                        const Tensor from = in.values(DType::f32, {count});
                        const Tensor to = in.space(DType::f32, {count});
                        if (is_cast) return [=](Stream s) { cast(s, {.out = to, .inp = from}); };
                        return [=](Stream s) { copy(s, to, from); };
                    }};
    };
    const auto matmul_rate = [&](DType dtype) {
        const std::int64_t n = is_cuda ? 8192 : 1024;
        const Case c{.op = "matmul",
                     .shape = "",
                     .dtype = dtype,
                     .bytes = 0.0,
                     .flops = 2.0 * static_cast<double>(n * n * n),
                     .make = [=](Inputs& in) -> Call {
                         const MatmulForward args{.out = in.space(dtype, {n, n}),
                                                  .pre_gelu = Tensor{},
                                                  .inp = in.values(dtype, {n, n}),
                                                  .weight = in.values(dtype, {n, n}),
                                                  .bias = ConstTensor{}};
                         return [=](Stream s) { matmul_forward(s, args); };
                     }};
        return c.flops / measure(context, c, seconds).seconds;
    };
    Roof roof;
    roof.copy_bytes_per_s = bytes / std::min(measure(context, copy_case(false), seconds).seconds,
                                             measure(context, copy_case(true), seconds).seconds);
    roof.f32_flops_per_s = matmul_rate(DType::f32);
    // The CPU has no bf16 products: it widens and multiplies in fp32.
    roof.bf16_flops_per_s = is_cuda ? matmul_rate(DType::bf16) : roof.f32_flops_per_s;
    return roof;
}

std::string header_line() {
    char text[200];
    std::snprintf(text, sizeof(text), "%-28s %-26s %-5s %-6s %12s %7s %9s %9s %6s %12s", "op",
                  "shape", "dtype", "device", "us", "spread", "GB/s", "TFLOP/s", "%roof",
                  "library us");
    return text;
}

std::string line(const Case& c, const Measured& measured, const Roof& roof, Device device) {
    const double seconds = measured.own.seconds;
    const std::string tflops = c.flops > 0.0 ? fixed(c.flops / seconds * 1e-12, 3) : "-";
    const bool has_library = !measured.library.samples.empty();
    const std::string library_us = has_library ? fixed(measured.library.seconds * 1e6, 2) : "-";
    char text[240];
    std::snprintf(text, sizeof(text), "%-28s %-26s %-5s %-6s %12.2f %6.1f%% %9.1f %9s %6.1f %12s",
                  c.op.c_str(), c.shape.c_str(), name_of(c.dtype), name_of(device), seconds * 1e6,
                  measured.own.spread * 100.0, c.bytes / seconds * 1e-9, tflops.c_str(),
                  100.0 * roof.seconds(c) / seconds, library_us.c_str());
    return has_library ? str(text, " ", c.library.name) : text;
}

}  // namespace ingot::bench
