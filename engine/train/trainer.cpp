#include "engine/train/trainer.h"

#include <chrono>
#include <cmath>
#include <filesystem>

#include "data/token_hash.h"
#include "engine/core/op_range.h"
#include "engine/train/console.h"
#include "engine/train/hf_weights.h"
#include "engine/train/text_sampler.h"
#include "engine/train/warm_up.h"
#include "kernels/blas.h"
#include "kernels/sum.h"
#include "model/flops.h"

namespace ingot {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

ArenaPlan loader_memory_plan(const LoaderConfig& config) {
    ArenaPlan plan("loader batches");
    plan.add("ids", DType::i32, {loader_memory_numel(config)});
    plan.place();
    return plan;
}

// Weights of another run would be replaced by those of the same step of this one.
void refuse_other_weights(const std::string& checkpoint_dir) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint_dir, ignored)) {
        ENSURE(!fs::exists(entry.path() / "model.safetensors"), "run.no_resume",
               "checkpoint.dir = ", checkpoint_dir, " holds weights of another run (",
               entry.path().filename().string(),
               "), and this release cannot resume one; name another checkpoint.dir");
    }
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, Log& log, const CpuContextOptions& cpu_options)
    : config_(config),
      log_(log),
      setup_(set_up_training(config, log)),
      schedule_(config, setup_.total_steps) {
    const MemoryRequest request = setup_.memory_request(config);
    memory_plan_ = plan_memory(request);
    require_fits(request, memory_plan_);
    if (!file_exists(config.log.dir + "/config.json")) refuse_other_weights(config.checkpoint.dir);
    folder_ = std::make_unique<RunFolder>(config, log);
    print_start();

    context_ =
        setup_.device == Device::cuda ? Context::make_cuda(0) : Context::make_cpu(cpu_options);
    decoder_ = std::make_unique<Decoder>(*context_, setup_.model, request.activations);
    note_attention_workspace();
    store_ = std::make_unique<ParamStore>(*context_, decoder_->params(), request.params);
    optimizer_ =
        std::make_unique<Optimizer>(*context_, *store_,
                                    OptimizerOptions{.beta1 = config.optimizer.beta1,
                                                     .beta2 = config.optimizer.beta2,
                                                     .eps = config.optimizer.eps,
                                                     .weight_decay = config.optimizer.weight_decay,
                                                     .grad_clip = config.optimizer.grad_clip});
    timer_ = std::make_unique<PhaseTimer>(*context_, Optimizer::kSlots);
    LoaderConfig loader = request.loader;
    loader_memory_ = Arena(*context_, loader_memory_plan(loader), Buffer::Kind::pinned);
    loader.memory = loader_memory_.tensor(0);
    loader_ = std::make_unique<Loader>(*setup_.train, loader);
    feeder_ = std::make_unique<BatchFeeder>(*context_, *loader_, setup_.B, setup_.T);
    evaluator_ = std::make_unique<Evaluator>(*context_, *decoder_, *store_);
    open_tokenizer();
    flops_per_token_ =
        train_flops_per_token(setup_.model, decoder_->params().num_parameters(), setup_.T);
    peak_flops_ = setup_.device == Device::cpu ? blas::measured_flops() : request.target.peak_flops;
    initialize_weights();
    if (setup_.device == Device::cuda) {
        start_monitor();
        warm_up();
    }
    folder_->save_config(config);
    metrics_ = std::make_unique<MetricsWriter>(folder_->log_dir(), 1);
}

Trainer::~Trainer() = default;

// Everything that a step does is done once before step 1, so that steps load and allocate nothing.
void Trainer::warm_up() {
    const Stream stream = context_->compute_stream();
    const WarmUp parts{*decoder_, *store_, *optimizer_, feeder_->memory(0)};
    choose_matmul_algorithms(stream, parts, config_.train.matmul_plans,
                             folder_->log_dir() + "/matmul_plans.txt", log_);
    warm_up_evaluation(stream, parts);
    print_memory("before step 1");
}

void Trainer::start_monitor() {
    std::string problem;
    const DeviceInfo info = cuda_device_info(context_->device_index());
    std::unique_ptr<NvmlDevice> device = NvmlDevice::open(info.pci_bus_id, &problem);
    if (device == nullptr) {
        log_.info(str("records without the GPU's load, power and clocks: ", problem));
        return;
    }
    monitor_ = std::make_unique<GpuMonitor>(std::move(device));
}

// Training needs no tokenizer: one that this program cannot decode with costs the samples only.
void Trainer::open_tokenizer() {
    if (setup_.tokenizer_folder.empty()) return;
    try {
        tokenizer_ = std::make_unique<TokenDecoder>(setup_.tokenizer_folder + "/tokenizer.json");
    } catch (const Error& error) {
        if (std::string(error.code()) != "tokenizer.decoder") throw;
        log_.warning(str(error.what(), "; no text will be sampled"));
    }
}

void Trainer::initialize_weights() {
    if (setup_.has_pretrained_weights) {
        import_hf_weights(config_.model.hf, *store_);
        log_.info(str("weights: loaded from ", config_.model.hf));
    } else {
        store_->initialize(static_cast<std::uint64_t>(config_.train.seed));
        log_.info(str("weights: random, GPT-2's initialization, seed ", config_.train.seed));
    }
}

void Trainer::run() {
    const std::int64_t lag = result_lag(setup_.device);
    const Stream stream = context_->compute_stream();
    std::vector<PendingStep> pending;  // at most lag + 1, oldest first
    const auto finish_oldest = [&] {
        finish_step(pending.front());
        const std::int64_t step = pending.front().step;
        pending.erase(pending.begin());
        return step;
    };
    std::int64_t step = 0;
    while (step < setup_.total_steps && !stop_requested(step)) {
        ++step;
        const TraceRange range("step");
        if (step == config_.log.profile_step) profile_ = std::make_unique<OpProfile>(*context_);
        const PendingStep next = enqueue_forward_backward(step);
        // What came before must be known to be finite before anything more is updated.
        while (!pending.empty())
            finish_oldest();
        optimizer_->step(stream, step, next.lr, next.valid_tokens);
        timer_->mark(stream, PhaseTimer::Phase::optimizer);
        if (profile_ != nullptr) profile_->stop();
        pending.push_back(next);
        const bool wants_model = step == setup_.total_steps ||
                                 (config_.eval.every > 0 && step % config_.eval.every == 0) ||
                                 (config_.sample.every > 0 && step % config_.sample.every == 0);
        while (!pending.empty() &&
               (static_cast<std::int64_t>(pending.size()) > lag || wants_model || step == 1)) {
            finish_oldest();
        }
        if (step == 1 && setup_.device == Device::cpu) print_memory("after step 1");
        after_step(step);
    }
    while (!pending.empty())
        finish_oldest();
    finish(step);
}

Trainer::PendingStep Trainer::enqueue_forward_backward(std::int64_t step) {
    const Stream stream = context_->compute_stream();
    PendingStep pending;
    pending.step = step;
    pending.lr = schedule_.learning_rate(step);
    std::uint64_t step_hash = 0;
    timer_->begin_step(stream, step);
    if (config_.train.overfit_one_batch && step > 1) {
        context_->copy_stream().synchronize();  // seek() takes the batches back: they are copied
        loader_->seek(0);
    }
    for (std::int64_t micro_step = 0; micro_step < setup_.grad_accum_steps; ++micro_step) {
        const TraceRange range("micro-step");
        const DeviceBatch batch = feeder_->next(stream);
        pending.data_wait_ms += batch.host.wait_ms;
        pending.valid_tokens += batch.host.valid_targets;
        step_hash += batch.host.token_hash;
        timer_->mark(stream, PhaseTimer::Phase::wait);
        store_->begin_micro_step(micro_step);
        decoder_->forward(stream, *store_, batch.inputs);
        timer_->mark(stream, PhaseTimer::Phase::forward);
        const Tensor losses =
            decoder_->loss_and_backward(stream, *store_, batch.order, batch.targets);
        sum(stream, {.out = optimizer_->loss_sum(), .inp = losses, .accumulate = micro_step > 0});
        timer_->mark(stream, PhaseTimer::Phase::backward);
        feeder_->release(stream, batch);
    }
    token_hash_ = chain_token_hash(token_hash_, step_hash);
    pending.token_hash = token_hash_;
    return pending;
}

void Trainer::after_step(std::int64_t step) {
    const bool is_last = step == setup_.total_steps;
    if (!is_last && config_.eval.every > 0 && step % config_.eval.every == 0) {
        validate_now(step, config_.eval.batches);
    }
    if (!is_last && config_.sample.every > 0 && step % config_.sample.every == 0) {
        print_sample(step);
    }
}

void Trainer::validate_now(std::int64_t step, std::int64_t max_batches) {
    if (setup_.val == nullptr) return;
    const TraceRange range("evaluation");
    const auto begin = std::chrono::steady_clock::now();
    const EvalResult result = evaluator_->run(*setup_.val, max_batches);
    evaluation_s_ += seconds_since(begin);
    metrics_->validation({.step = step, .loss = result.loss, .tokens = result.tokens});
    log_.info(str("step ", step, ": validation loss ", format_number(result.loss), " over ",
                  format_count(result.tokens), " tokens"));
}

void Trainer::print_sample(std::int64_t step) {
    if (tokenizer_ == nullptr || config_.sample.tokens == 0) return;
    const TraceRange range("sample");
    const auto begin = std::chrono::steady_clock::now();
    TextRequest request;
    // The start of a document is what follows a separator.
    request.prompt = {static_cast<std::int32_t>(setup_.eos_id >= 0 ? setup_.eos_id : 0)};
    request.num_tokens = config_.sample.tokens;
    request.stop_id = setup_.eos_id;
    request.seed = static_cast<std::uint64_t>(config_.train.seed);
    request.stream = static_cast<std::uint64_t>(step);
    request.options = {.temperature = config_.sample.temperature, .top_k = config_.sample.top_k};
    Utf8Stream text;
    log_.raw(str("--- sample after step ", step, " (temperature ", config_.sample.temperature,
                 ", top_k ", config_.sample.top_k, ")\n"));
    generate(*context_, *decoder_, *store_, evaluator_->ids(), request, [&](std::int32_t id) {
        if (id != setup_.eos_id) log_.raw(text.push(tokenizer_->bytes(id)));
    });
    log_.raw(text.finish() + "\n---\n");
    sampling_s_ += seconds_since(begin);
}

bool Trainer::stop_requested(std::int64_t last_step) {
    if (stop_signal() == 0) return false;
    if (!has_said_stop_) {
        log_.warning(str("signal ", stop_signal(), ": stopping after step ", last_step, " of ",
                         setup_.total_steps,
                         " with its weights, without validation, test and sample; another signal "
                         "ends the process at once"));
    }
    has_said_stop_ = true;
    return true;
}

void Trainer::test_now(std::int64_t step) {
    if (setup_.test == nullptr) return;
    const EvalResult result = evaluator_->run(*setup_.test, 0);
    metrics_->test({.step = step, .loss = result.loss, .tokens = result.tokens});
    log_.info(str("test loss ", format_number(result.loss), " over ", format_count(result.tokens),
                  " tokens"));
}

// The weights come first: whoever stops the run now has little patience, and evaluating a large
// set takes long.
void Trainer::finish(std::int64_t last_step) {
    if (last_step == 0) return;
    checkpoint_path_ = str(folder_->checkpoint_dir(), "/checkpoint-", last_step);
    export_hf(*store_, setup_.model,
              {.folder = checkpoint_path_,
               .dtype = DType::f32,
               .tokenizer_folder = setup_.tokenizer_folder,
               .eos_id = setup_.eos_id});
    if (!stop_requested(last_step)) validate_now(last_step, 0);
    if (!stop_requested(last_step)) test_now(last_step);
    if (!stop_requested(last_step)) print_sample(last_step);
    metrics_->sync();
    print_memory(str("after step ", last_step));
    print_summary(last_step);
}

}  // namespace ingot
