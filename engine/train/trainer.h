// One training run on one rank: the loop, from the first batch to the exported weights.
//
// Order of a step (docs/architecture.md walks through it): micro-steps of forward, loss and
// backward; a look at the step before (its loss and norm are read with a lag of one step on CUDA,
// none on the CPU); global norm, clipping, AdamW. A step whose loss or gradient is not finite
// changes nothing and stops the run (train.nonfinite) before anything later is updated, or is
// skipped. Inside a step the host waits for that look alone (docs/adr/0018-host-waits.md); with
// train.overfit_one_batch, a check and no way to train, also for the copies of the step before.
// Errors: train.nonfinite, and those of everything below.
#pragma once

#include <memory>
#include <vector>

#include "data/tokenizer.h"
#include "engine/core/log.h"
#include "engine/core/op_range.h"
#include "engine/train/batch_feeder.h"
#include "engine/train/config.h"
#include "engine/train/evaluator.h"
#include "engine/train/gpu_monitor.h"
#include "engine/train/metrics.h"
#include "engine/train/optimizer.h"
#include "engine/train/phase_timer.h"
#include "engine/train/run_folder.h"
#include "engine/train/run_setup.h"
#include "engine/train/schedule.h"
#include "engine/train/stop_signal.h"
#include "model/decoder.h"

namespace ingot {

class Trainer {
  public:
    // Opens data and folders, prints configuration and plan, allocates, initializes or loads the
    // weights: everything that can be refused is refused here. cpu_options: adversarial streams in
    // tests.
    Trainer(const TrainConfig& config, Log& log, const CpuContextOptions& cpu_options = {});
    ~Trainer();

    // Trains to the last step, writes the weights to CHECKPOINT_DIR/checkpoint-STEP, evaluates and
    // samples. SIGINT or SIGTERM ends the run after the present step, with its weights.
    void run();

    // The signal that has ended the run, or 0.
    int stop_signal() { return stop_signal_.received(); }

    const RunSetup& setup() const { return setup_; }
    const ParamStore& store() const { return *store_; }
    const MemoryPlan& memory_plan() const { return memory_plan_; }
    Context& context() { return *context_; }
    const std::string& checkpoint_path() const { return checkpoint_path_; }  // after run()

  private:
    // What the host knows about a step that the device may still be doing.
    struct PendingStep {
        std::int64_t step = 0;  // 1 is the first
        double lr = 0.0;
        std::int64_t valid_tokens = 0;
        std::uint64_t token_hash = 0;
        double data_wait_ms = 0.0;
    };

    void print_start();
    void start_monitor();
    void warm_up();
    void note_attention_workspace();
    void open_tokenizer();
    void initialize_weights();
    PendingStep enqueue_forward_backward(std::int64_t step);
    void finish_step(const PendingStep& pending);
    void report_profile(std::int64_t step, double step_ms);
    void refuse_nonfinite(const PendingStep& pending, const StepResult& result);
    void after_step(std::int64_t step);
    bool stop_requested(std::int64_t last_step);
    void validate_now(std::int64_t step, std::int64_t max_batches);
    void test_now(std::int64_t step);
    void print_sample(std::int64_t step);
    void finish(std::int64_t last_step);
    void print_memory(const std::string& when);
    void print_summary(std::int64_t last_step);

    TrainConfig config_;
    Log& log_;
    StopSignal stop_signal_;  // before any thread is made
    bool has_said_stop_ = false;
    RunSetup setup_;
    std::unique_ptr<RunFolder> folder_;
    MemoryPlan memory_plan_;
    std::unique_ptr<Context> context_;
    std::unique_ptr<Decoder> decoder_;
    std::unique_ptr<ParamStore> store_;
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<PhaseTimer> timer_;
    std::unique_ptr<OpProfile> profile_;  // while log.profile_step is enqueued and not yet read
    Arena loader_memory_;
    std::unique_ptr<Loader> loader_;
    std::unique_ptr<BatchFeeder> feeder_;
    std::unique_ptr<Evaluator> evaluator_;
    std::unique_ptr<TokenDecoder> tokenizer_;
    std::unique_ptr<MetricsWriter> metrics_;
    std::unique_ptr<GpuMonitor> monitor_;  // null on the CPU and without the driver's library
    Schedule schedule_;
    double flops_per_token_ = 0.0;
    double peak_flops_ = 0.0;  // of the device, FLOP/s; 0 = unknown

    std::uint64_t token_hash_ = 0;
    double total_ms_ = 0.0;  // of finished steps, by phase
    double forward_ms_ = 0.0, backward_ms_ = 0.0, optimizer_ms_ = 0.0, data_wait_ms_ = 0.0;
    double evaluation_s_ = 0.0, sampling_s_ = 0.0;
    double last_loss_ = 0.0;
    std::string checkpoint_path_;
};

}  // namespace ingot
