// The records of a run: metrics.jsonl (one JSON object a line, docs/formats.md) and the TensorBoard
// curves. Each line is one write(2). A number that is not finite is null in JSON.
//
//   a step        {"step":7, "epoch":..., "loss":..., ... "token_hash":"16 hex digits"}
//   a validation  {"step":7, "val_loss":..., "val_tokens":...}
//   the test set  {"step":7, "test_loss":..., "test_tokens":...}
//   a restart     {"event":"start", "first_step":7}
// The last is written by a process that does steps again which the file already has: lines before
// it with a step >= 7 are void. The TensorBoard tags are loss, val_loss, test_loss, learning_rate,
// step, epoch, tokens_per_s, grad_norm, step_ms and data_wait_ms. Errors: file.*, metrics.foreign.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/file.h"
#include "engine/core/nvml.h"
#include "engine/train/tensorboard.h"

namespace ingot {

struct StepRecord {
    std::int64_t step = 0;    // 1 is the first
    double epoch = 0;         // passes over the training data after this step
    double loss = 0;          // nats per valid token, mean over the global batch
    double grad_norm = 0;     // before clipping
    double lr = 0;            // used by this step
    std::int64_t tokens = 0;  // of this step
    double tokens_per_s = 0;
    double step_ms = 0;
    double forward_ms = 0;
    double backward_ms = 0;
    double optimizer_ms = 0;
    double comm_exposed_ms = 0;
    double data_wait_ms = 0;
    std::uint64_t token_hash = 0;  // decision 12 of the design: of all steps so far
    GpuSample gpu;                 // of the rank's device, the latest before the record
};

struct EvalRecord {
    std::int64_t step = 0;
    double loss = 0;          // nats per token
    std::int64_t tokens = 0;  // evaluated
};

std::string to_json_line(const StepRecord& record);  // with the line end

class MetricsWriter {
  public:
    // Rank 0 only. FOLDER/metrics.jsonl is appended to; a torn last line (a process killed while
    // writing it) is cut off first. first_step: the first step that this process will do, 1 in a
    // new run.
    MetricsWriter(const std::string& folder, std::int64_t first_step);

    void step(const StepRecord& record);
    void validation(const EvalRecord& record);
    void test(const EvalRecord& record);
    void sync();

    const std::string& path() const { return lines_.path(); }
    const std::string& tensorboard_path() const { return tensorboard_.path(); }
    std::int64_t torn_bytes() const { return torn_bytes_; }  // cut off when opened

  private:
    MetricsWriter(const std::string& folder, const std::string& path, std::int64_t first_step);

    std::int64_t torn_bytes_ = 0;
    AppendFile lines_;
    TensorBoardWriter tensorboard_;
};

}  // namespace ingot
