#include "engine/train/param_store.h"

#include <algorithm>
#include <vector>

#include "engine/core/rng.h"

namespace ingot {
namespace {

constexpr std::int64_t kStagingElements = 1 << 20;  // 4 MiB of host memory at a time

}  // namespace

void read_floats(Context& context, ConstTensor src, float* values) {
    const Stream stream = context.compute_stream();
    const std::int64_t count = src.numel();
    if (src.dtype == DType::f32) {
        copy(stream, make_tensor(values, DType::f32, {count}, Device::cpu), src.view({count}));
        stream.synchronize();
        return;
    }
    std::vector<bf16> staging(static_cast<std::size_t>(count));
    copy(stream, make_tensor(staging.data(), DType::bf16, {count}, Device::cpu), src.view({count}));
    stream.synchronize();
    std::transform(staging.begin(), staging.end(), values, [](bf16 x) { return to_float(x); });
}

void write_floats(Context& context, Tensor dst, const float* values) {
    const Stream stream = context.compute_stream();
    const std::int64_t count = dst.numel();
    if (dst.dtype == DType::f32) {
        copy(stream, dst.view({count}), make_tensor(values, DType::f32, {count}, Device::cpu));
        stream.synchronize();
        return;
    }
    std::vector<bf16> staging(static_cast<std::size_t>(count));
    std::transform(values, values + count, staging.begin(), [](float x) { return to_bf16(x); });
    copy(stream, dst.view({count}), make_tensor(staging.data(), DType::bf16, {count}, Device::cpu));
    stream.synchronize();
}

ParamStorePlan plan_param_store(const ParamTable& table, const ParamStoreOptions& options) {
    ParamStorePlan plan;
    for (const ParamGroup& group : table.groups) {
        ParamStorePlan::Group regions;
        const auto add = [&](const char* what, DType dtype) {
            return plan.arena.add(group.name + "." + what, dtype, {group.numel});
        };
        regions.params = add("params", options.params);
        if (options.with_grads) regions.grads = add("grads", options.grads);
        if (options.params == DType::f32) regions.master = regions.params;
        if (options.with_optimizer) {
            if (options.params != DType::f32) regions.master = add("master", DType::f32);
            regions.m = add("m", DType::f32);
            regions.v = add("v", DType::f32);
        }
        plan.groups.push_back(regions);
    }
    plan.arena.place();
    return plan;
}

ParamStore::ParamStore(Context& context, const ParamTable& table, const ParamStoreOptions& options)
    : context_(context),
      table_(table),
      options_(options),
      plan_(plan_param_store(table, options)),
      arena_(context, plan_.arena) {}

void ParamStore::write(const ParamSpec& spec,
                       std::int64_t begin,
                       std::int64_t count,
                       const float* values) {
    const std::int64_t first = spec.offset + begin;
    ENSURE(begin >= 0 && count >= 0 && begin + count <= spec.numel(), "params.range", "parameter ",
           spec.name, ": elements [", begin, ", ", begin + count, ") of ", spec.numel());
    write_floats(context_, params(spec.group).slice(first, first + count), values);
    const Tensor group_master = master(spec.group);
    if (group_master && group_master.data != params(spec.group).data) {
        write_floats(context_, group_master.slice(first, first + count), values);
    }
}

void ParamStore::read(const ParamSpec& spec,
                      std::int64_t begin,
                      std::int64_t count,
                      float* values) const {
    const std::int64_t first = spec.offset + begin;
    ENSURE(begin >= 0 && count >= 0 && begin + count <= spec.numel(), "params.range", "parameter ",
           spec.name, ": elements [", begin, ", ", begin + count, ") of ", spec.numel());
    const Tensor source = master(spec.group) ? master(spec.group) : params(spec.group);
    read_floats(context_, source.slice(first, first + count), values);
}

void ParamStore::initialize(std::uint64_t seed) {
    std::vector<float> staging;
    for (std::size_t index = 0; index < table_.params.size(); ++index) {
        const ParamSpec& spec = table_.params[index];
        const std::uint64_t stream = random_stream(RandomUse::parameter_init, index);
        for (std::int64_t begin = 0; begin < spec.numel(); begin += kStagingElements) {
            const std::int64_t count = std::min(kStagingElements, spec.numel() - begin);
            staging.assign(static_cast<std::size_t>(count), spec.init == Init::ones ? 1.0F : 0.0F);
            if (spec.init == Init::normal) {
                // Padded rows lie at the end and stay zero.
                const std::int64_t drawn =
                    std::clamp<std::int64_t>(spec.stored_numel() - begin, 0, count);
#pragma omp parallel for schedule(static)
                for (std::int64_t i = 0; i < drawn; ++i) {
                    staging[static_cast<std::size_t>(i)] = static_cast<float>(
                        spec.init_std *
                        philox_normal(seed, stream, static_cast<std::uint64_t>(begin + i)));
                }
            }
            write(spec, begin, count, staging.data());
        }
    }
}

ConstTensor ParamStore::before_forward(Stream, int group) {
    return params(group);
}

void ParamStore::after_forward(Stream, int) {}

GroupHooks::Backward ParamStore::before_backward(Stream, int group) {
    ENSURE(options_.with_grads, "params.no_grads",
           "ParamStore: a backward pass was asked of a store without gradients");
    return {params(group), grads(group), accumulate_};
}

void ParamStore::after_backward(Stream, int, bool) {}

}  // namespace ingot
