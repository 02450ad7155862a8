#include "engine/train/warm_up.h"

#include <chrono>
#include <limits>
#include <vector>

#include "engine/core/file.h"
#include "engine/core/op_range.h"
#include "engine/core/rng.h"
#include "engine/core/token_order.h"
#include "engine/train/console.h"
#include "kernels/cast.h"
#include "kernels/matmul_plan.h"
#include "kernels/sum.h"

namespace ingot {
namespace {

struct RandomBatch {
    Tensor ids;    // (B, T)
    Tensor order;  // (B * T, 2)
};

RandomBatch random_batch(Stream stream, const WarmUp& parts) {
    const std::int64_t B = parts.batch.dim(1);
    const std::int64_t T = parts.batch.dim(2);
    std::vector<std::int32_t> random(static_cast<std::size_t>(B * T));
    for (std::size_t i = 0; i < random.size(); ++i) {
        random[i] =
            static_cast<std::int32_t>(philox_uniform(0, random_stream(RandomUse::warm_up, 0), i) *
                                      static_cast<double>(parts.decoder.config().vocab_size));
    }
    std::vector<std::int32_t> order = token_order(random);
    const RandomBatch batch = {parts.batch.slice(0, 1).view({B, T}),
                               parts.batch.slice(2, 4).view({B * T, 2})};
    copy(stream, batch.ids, make_tensor(random.data(), DType::i32, {B, T}, Device::cpu));
    copy(stream, batch.order, make_tensor(order.data(), DType::i32, {B * T, 2}, Device::cpu));
    stream.synchronize();  // before the host's memory goes
    return batch;
}

// A text of another GPU model or cuBLASLt is left aside with a warning.
void import_plans(Stream stream, const std::string& path, Log& log) {
    try {
        matmul_import_plans(stream, read_text_file(path));
    } catch (const Error& error) {
        if (std::string(error.code()) != "matmul.plan_device") throw;
        log.warning(str("train.matmul_plans = ", path, ": ", error.what(),
                        ". They are timed again; this run's bits may differ from those of the run "
                        "that wrote them"));
        return;
    }
    log.info(str("matmul algorithms: taken from ", path));
}

}  // namespace

void warm_up_step(Stream stream, const WarmUp& parts) {
    const TraceRange range("warm-up");
    const RandomBatch batch = random_batch(stream, parts);
    const Tensor loss_sum = parts.optimizer.loss_sum();
    for (const std::int64_t micro_step : {0, 1}) {
        parts.store.begin_micro_step(micro_step);
        parts.decoder.forward(stream, parts.store, batch.ids);
        const Tensor losses =
            parts.decoder.loss_and_backward(stream, parts.store, batch.order, batch.ids);
        sum(stream, {.out = loss_sum, .inp = losses, .accumulate = micro_step > 0});
    }
    // AdamW does nothing in a step whose loss is not finite.
    fill(stream, {.out = loss_sum, .value = std::numeric_limits<float>::quiet_NaN()});
    parts.optimizer.step(stream, 1, 0.0, 1);
    stream.synchronize();
}

void warm_up_evaluation(Stream stream, const WarmUp& parts) {
    const TraceRange range("warm-up");
    const Tensor ids = random_batch(stream, parts).ids;
    parts.decoder.forward(stream, parts.store, ids);
    const Tensor losses = parts.decoder.loss(stream, parts.store, ids);
    sum(stream, {.out = parts.optimizer.loss_sum(), .inp = losses, .accumulate = false});
    parts.decoder.forward(stream, parts.store, ids.view({ids.numel()}).slice(0, 1).view({1, 1}));
    parts.decoder.logits(stream, parts.store, 0, 1);
    stream.synchronize();
}

void choose_matmul_algorithms(Stream stream,
                              const WarmUp& parts,
                              const std::string& plans,
                              const std::string& saved,
                              Log& log) {
    const auto begin = std::chrono::steady_clock::now();
    if (!plans.empty()) import_plans(stream, plans, log);
    const std::string imported = matmul_export_plans(stream);
    matmul_begin_tuning(stream, {});
    warm_up_step(stream, parts);
    matmul_end_tuning(stream);
    const std::string chosen = matmul_export_plans(stream);
    write_text_file(saved, chosen);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    log.info(str(
        "matmul algorithms: ",
        chosen == imported ? "none had to be timed" : str("timed in ", format_duration(seconds)),
        ", ", saved));
}

}  // namespace ingot
