#include "engine/train/evaluator.h"

#include "kernels/sum.h"

namespace ingot {

ArenaPlan Evaluator::plan_device(std::int64_t B, std::int64_t T) {
    ArenaPlan plan("evaluation batch");
    plan.add("ids", DType::i32, {2, B, T});
    plan.add("loss", DType::f32, {1});
    plan.place();
    return plan;
}

ArenaPlan Evaluator::plan_pinned(std::int64_t B, std::int64_t T) {
    ArenaPlan plan("pinned evaluation batch");
    plan.add("ids", DType::i32, {2, B, T});
    plan.place();
    return plan;
}

Evaluator::Evaluator(Context& context, Decoder& decoder, ParamStore& store)
    : context_(context),
      decoder_(decoder),
      store_(store),
      numel_(decoder.options().B * decoder.options().T),
      device_(context, plan_device(decoder.options().B, decoder.options().T)),
      pinned_(
          context, plan_pinned(decoder.options().B, decoder.options().T), Buffer::Kind::pinned) {}

EvalResult Evaluator::run(const TokenSet& set, std::int64_t max_batches) {
    const std::int64_t B = decoder_.options().B;
    const std::int64_t T = decoder_.options().T;
    const Stream stream = context_.compute_stream();
    EvaluationBatches batches(set, {.seq_len = T,
                                    .micro_batch = B,
                                    .rank = 0,
                                    .world_size = 1,
                                    .max_batches = max_batches,
                                    .memory = pinned_.tensor(0).view({2 * B * T})});
    const Tensor ids = device_.tensor(0);
    const Tensor inputs = ids.slice(0, 1).view({B, T});
    const Tensor targets = ids.slice(1, 2).view({B, T});
    double loss_sum = 0.0;
    EvalResult result;
    for (std::int64_t i = 0; i < batches.num_batches(); ++i) {
        const EvaluationBatch batch = batches.read(i);
        copy(stream, inputs, batch.inputs);
        copy(stream, targets, batch.targets);
        decoder_.forward(stream, store_, inputs);
        const Tensor losses = decoder_.loss(stream, store_, targets);
        sum(stream, {.out = device_.tensor(1), .inp = losses, .accumulate = false});
        float batch_loss = 0.0F;
        read_floats(context_, device_.tensor(1), &batch_loss);
        loss_sum += batch_loss;
        result.tokens += batch.valid_targets;
    }
    result.loss = loss_sum / static_cast<double>(result.tokens);
    return result;
}

}  // namespace ingot
