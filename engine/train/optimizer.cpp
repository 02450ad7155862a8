#include "engine/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/core/op_range.h"
#include "kernels/adamw.h"
#include "kernels/global_norm.h"

namespace ingot {
namespace {

// A result slot holds the scalars and the loss sum.
constexpr std::int64_t kResultFloats = kNumStepScalars + 1;

}  // namespace

OptimizerPlan plan_optimizer(const ParamTable& table, Device device) {
    OptimizerPlan plan;
    std::int64_t scratch_bytes = 0;
    for (const ParamGroup& group : table.groups) {
        scratch_bytes = std::max(scratch_bytes, squared_norm_scratch_bytes(device, group.numel));
    }
    plan.scalars = plan.arena.add("scalars", DType::f32, {kNumStepScalars});
    plan.squares =
        plan.arena.add("squares", DType::f32, {static_cast<std::int64_t>(table.groups.size())});
    plan.loss_sum = plan.arena.add("loss_sum", DType::f32, {1});
    plan.scratch = plan.arena.add("norm scratch", DType::u8, {scratch_bytes});
    plan.arena.place();
    plan.pinned_inputs =
        plan.pinned.add("inputs", DType::f32, {Optimizer::kSlots, kNumStepScalars});
    plan.pinned_results =
        plan.pinned.add("results", DType::f32, {Optimizer::kSlots, kResultFloats});
    plan.pinned.place();
    return plan;
}

Optimizer::Optimizer(Context& context, ParamStore& store, const OptimizerOptions& options)
    : store_(store),
      options_(options),
      plan_(plan_optimizer(store.table(), context.device())),
      arena_(context, plan_.arena),
      pinned_(context, plan_.pinned, Buffer::Kind::pinned) {
    for (int i = 0; i < kSlots; ++i)
        done_.emplace_back(context);
}

void Optimizer::step(Stream stream, std::int64_t step, double lr, std::int64_t valid_tokens) {
    ENSURE(valid_tokens > 0, "optimizer.no_targets", "step ", step,
           ": the global batch has no target that counts; check the loss mask of the data");
    const TraceRange range("optimizer");
    const std::int64_t slot = step % kSlots;
    Event& done = done_[static_cast<std::size_t>(slot)];
    ENSURE(done.is_complete(), "optimizer.pending_slot", "step ", step,
           ": the device has not done the step ", kSlots,
           " before, whose slot of scalars this one takes; read the results of the last ", kSlots,
           " steps in time");
    valid_tokens_[slot] = valid_tokens;

    const Tensor inputs = pinned_.tensor(plan_.pinned_inputs).slice(slot, slot + 1);
    float* host = inputs.ptr<float>();
    const double t = static_cast<double>(step - num_skipped_);
    host[kLearningRate] = static_cast<float>(lr);
    // Of the rounded betas, which are those the kernel decays with.
    host[kBiasCorrection1] =
        static_cast<float>(1.0 - std::pow(static_cast<float>(options_.beta1), t));
    host[kBiasCorrection2] =
        static_cast<float>(1.0 - std::pow(static_cast<float>(options_.beta2), t));
    host[kInvTokens] = static_cast<float>(1.0 / static_cast<double>(valid_tokens));
    host[kMaxNorm] = static_cast<float>(options_.grad_clip);

    const Tensor scalars = arena_.tensor(plan_.scalars);
    const Tensor squares = arena_.tensor(plan_.squares);
    copy(stream, scalars.view({1, kNumStepScalars}), inputs);
    for (int g = 0; g < store_.num_groups(); ++g) {
        squared_norm(stream, {.out = squares.slice(g, g + 1),
                              .scratch = arena_.tensor(plan_.scratch),
                              .inp = store_.grads(g),
                              .accumulate = false});
    }
    clip_by_global_norm(stream, {.scalars = scalars, .squares = squares, .loss = loss_sum()});
    for (int g = 0; g < store_.num_groups(); ++g)
        update_group(stream, g);

    const Tensor results =
        pinned_.tensor(plan_.pinned_results).slice(slot, slot + 1).view({kResultFloats});
    copy(stream, results.slice(0, kNumStepScalars), scalars);
    copy(stream, results.slice(kNumStepScalars, kResultFloats), loss_sum());
    stream.record(done);
}

// Two ranges: with weight decay and without.
void Optimizer::update_group(Stream stream, int g) {
    const ParamGroup& group = store_.table().groups[static_cast<std::size_t>(g)];
    const bool params_are_master = store_.params(g).data == store_.master(g).data;
    const auto update = [&](std::int64_t begin, std::int64_t end, double weight_decay) {
        if (begin == end) return;
        adamw(stream, {.master = store_.master(g).slice(begin, end),
                       .m = store_.m(g).slice(begin, end),
                       .v = store_.v(g).slice(begin, end),
                       .param = params_are_master ? Tensor{} : store_.params(g).slice(begin, end),
                       .grad = store_.grads(g).slice(begin, end),
                       .scalars = arena_.tensor(plan_.scalars),
                       .beta1 = static_cast<float>(options_.beta1),
                       .beta2 = static_cast<float>(options_.beta2),
                       .eps = static_cast<float>(options_.eps),
                       .weight_decay = static_cast<float>(weight_decay)});
    };
    update(0, group.decay_numel, options_.weight_decay);
    update(group.decay_numel, group.numel, 0.0);
}

StepResult Optimizer::result(std::int64_t step) const {
    const std::int64_t slot = step % kSlots;
    done_[static_cast<std::size_t>(slot)].synchronize();
    const Tensor results = pinned_.tensor(plan_.pinned_results).slice(slot, slot + 1);
    const float* host = results.ptr<float>();
    StepResult result;
    result.loss = host[kNumStepScalars] / static_cast<double>(valid_tokens_[slot]);
    result.grad_norm = host[kGradNorm];
    result.is_finite = host[kIsFinite] != 0.0F;
    return result;
}

}  // namespace ingot
