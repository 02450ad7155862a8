// What a run says: at its start, after each step, between steps, at its end.
#include "engine/core/file.h"
#include "engine/train/console.h"
#include "engine/train/step_profile.h"
#include "engine/train/trainer.h"
#include "kernels/attention_method.h"
#include "kernels/blas.h"
#include "model/param_table.h"

namespace ingot {

void Trainer::print_start() {
    log_.info(format_config(config_));
    log_.info(format_plan(setup_.memory_request(config_), memory_plan_));
    const ParamTable table = make_gpt2_param_table(setup_.model);
    log_.info(str("model: ", setup_.model.num_layers, " layers, ", setup_.model.num_heads,
                  " heads, ", setup_.model.channels, " channels, vocabulary ",
                  setup_.model.vocab_size, ", ", format_count(table.num_parameters()),
                  " parameters"));
    log_.info(str("data: ", setup_.train->description(), ", ", setup_.steps_per_epoch,
                  " steps an epoch"));
    log_.info(batch_line(config_, 1));
    if (setup_.device == Device::cpu) log_.info(blas::description());
    if (!root_warning().empty()) log_.warning(root_warning());
}

// cuDNN names its workspace when its plans are built, which the Decoder has just done.
void Trainer::note_attention_workspace() {
    if (setup_.attention != AttentionMethod::cudnn) return;
    const std::int64_t bytes = attention_workspace_bytes(*context_);
    memory_plan_.set_cudnn_workspace(bytes);
    log_.info(str("attention: cuDNN's workspace is ", format_bytes(bytes), ", ",
                  format_bytes(memory_plan_.device_bytes()), " planned in all"));
}

void Trainer::finish_step(const PendingStep& pending) {
    const StepResult result = optimizer_->result(pending.step);
    const PhaseTimes times = timer_->read(pending.step);
    if (!result.is_finite) refuse_nonfinite(pending, result);

    StepRecord record;
    record.step = pending.step;
    record.epoch = static_cast<double>(pending.step) / static_cast<double>(setup_.steps_per_epoch);
    record.loss = result.loss;
    record.grad_norm = result.grad_norm;
    record.lr = pending.lr;
    record.tokens = setup_.global_batch * setup_.T;
    record.tokens_per_s = static_cast<double>(record.tokens) / times.step_ms * 1e3;
    record.step_ms = times.step_ms;
    record.forward_ms = times.forward_ms;
    record.backward_ms = times.backward_ms;
    record.optimizer_ms = times.optimizer_ms;
    record.data_wait_ms = pending.data_wait_ms;
    record.token_hash = pending.token_hash;
    if (monitor_ != nullptr) record.gpu = monitor_->latest();
    metrics_->step(record);

    last_loss_ = result.loss;
    total_ms_ += times.step_ms;
    forward_ms_ += times.forward_ms;
    backward_ms_ += times.backward_ms;
    optimizer_ms_ += times.optimizer_ms;
    data_wait_ms_ += pending.data_wait_ms;

    StepLine line;
    line.step = pending.step;
    line.total_steps = setup_.total_steps;
    line.loss = result.loss;
    line.grad_norm = result.grad_norm;
    line.lr = pending.lr;
    line.step_ms = times.step_ms;
    line.tokens_per_s = record.tokens_per_s;
    if (peak_flops_ > 0.0) line.mfu = record.tokens_per_s * flops_per_token_ / peak_flops_;
    line.data_wait_fraction = pending.data_wait_ms / times.step_ms;
    if (pending.step > 1) {
        line.eta_s = static_cast<double>(setup_.total_steps - pending.step) * total_ms_ / 1e3 /
                     static_cast<double>(pending.step);
    }
    log_.info(format_step(line));
    if (pending.step == config_.log.profile_step) report_profile(pending.step, times.step_ms);
}

void Trainer::report_profile(std::int64_t step, double step_ms) {
    const StepProfile profile{step, step_ms, profile_->parts()};
    profile_.reset();
    const std::string path = folder_->log_dir() + "/profile.json";
    write_text_file(path, to_json(profile));
    log_.info(format_profile(profile) + "profile: " + path);
}

void Trainer::refuse_nonfinite(const PendingStep& pending, const StepResult& result) {
    const std::string what = str("step ", pending.step, ": loss = ", format_number(result.loss),
                                 ", gradient norm = ", format_number(result.grad_norm),
                                 ", lr = ", format_number(pending.lr));
    if (config_.train.nonfinite == TrainConfig::Train::Nonfinite::skip) {
        optimizer_->count_skipped();
        log_.warning(what + "; the update of this step was skipped");
        return;
    }
    fail("train.nonfinite", what, "; nothing was updated, the parameters are those after step ",
         pending.step - 1,
         ". Lower optimizer.lr, lengthen schedule.warmup_steps, look at the data of this step "
         "(token_hash in metrics.jsonl), or set train.nonfinite=skip");
}

void Trainer::print_memory(const std::string& when) {
    const std::int64_t measured = used_memory_bytes(*context_);
    const std::int64_t planned = memory_plan_.device_bytes();
    const double percent =
        100.0 * static_cast<double>(measured - planned) / static_cast<double>(planned);
    log_.info(str("memory ", when, ": planned ", format_bytes(planned), ", measured ",
                  format_bytes(measured), " (", percent > 0.0 ? "+" : "", format_number(percent),
                  " %)"));
    const std::int64_t allocated = context_->allocated_bytes();
    if (allocated != memory_plan_.exact_bytes()) {
        log_.warning(str("memory: buffers of ", allocated, " bytes, planned ",
                         memory_plan_.exact_bytes(), "; the plan misses a buffer, report this"));
    }
}

void Trainer::print_summary(std::int64_t last_step) {
    const double total_s = total_ms_ / 1e3 + evaluation_s_ + sampling_s_;
    log_.info(format_phases({{"forward", forward_ms_ / 1e3},
                             {"backward with head and loss", backward_ms_ / 1e3},
                             {"optimizer", optimizer_ms_ / 1e3},
                             {"waiting for data", data_wait_ms_ / 1e3},
                             {"evaluation", evaluation_s_},
                             {"sampling", sampling_s_}},
                            total_s));
    const double tokens = static_cast<double>(last_step * setup_.global_batch * setup_.T);
    log_.info(
        str("trained ", last_step, " steps, ", format_count(static_cast<std::int64_t>(tokens)),
            " tokens, ", format_count(static_cast<std::int64_t>(tokens / total_ms_ * 1e3)),
            " tokens/s, last loss ", format_number(last_loss_),
            optimizer_->num_skipped() > 0 ? str(", ", optimizer_->num_skipped(), " steps skipped")
                                          : ""));
    if (monitor_ != nullptr && !monitor_->summary().text().empty()) {
        log_.info(monitor_->summary().text());
    }
    log_.info(str("weights: ", checkpoint_path_, "\nrecords: ", metrics_->path()));
}

}  // namespace ingot
