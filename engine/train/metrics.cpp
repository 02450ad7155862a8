#include "engine/train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// What the end of an existing file says.
struct Tail {
    std::int64_t torn_bytes = 0;  // after the last line end
    std::int64_t last_step = 0;   // of the last complete line; 0 when there is none
};

Tail read_tail(const std::string& path) {
    Tail tail;
    if (!file_exists(path)) return tail;
    const FileReader file(path);
    constexpr std::int64_t kWindowBytes = 1 << 16;  // many times the longest line
    const std::int64_t begin = std::max<std::int64_t>(0, file.size_bytes() - kWindowBytes);
    std::string text(static_cast<std::size_t>(file.size_bytes() - begin), '\0');
    file.read(begin, text.data(), static_cast<std::int64_t>(text.size()));

    const std::size_t last_end = text.rfind('\n');
    const std::size_t complete = last_end == std::string::npos ? 0 : last_end + 1;
    ENSURE(complete > 0 || begin == 0, "metrics.foreign", "metrics: the last ", kWindowBytes,
           " bytes of ", path, " have no line end; it is no metrics file, move it away");
    tail.torn_bytes = static_cast<std::int64_t>(text.size() - complete);
    if (complete == 0) return tail;
    const std::size_t line_begin = last_end == 0 ? 0 : text.rfind('\n', last_end - 1) + 1;
    const Json line = Json::parse(text.substr(line_begin, last_end - line_begin), nullptr, false);
    if (line.is_object()) tail.last_step = line.value("step", line.value("first_step", 0LL));
    return tail;
}

// Appending behind a torn line would join two records into one that nobody can read.
Tail repair(const std::string& path) {
    const Tail tail = read_tail(path);
    if (tail.torn_bytes > 0) {
        const std::int64_t size = FileReader(path).size_bytes() - tail.torn_bytes;
        const int result = ::truncate(path.c_str(), size);
        const int error = errno;
        ENSURE(result == 0, "file.write", "cannot cut the torn last line of ", path, ": ",
               std::strerror(error));
    }
    return tail;
}

// A value that the device does not report has no key.
void add_gpu(const GpuSample& gpu, Json* line) {
    const auto add = [&](const char* key, const auto& value) {
        if (value) (*line)[key] = *value;
    };
    add("gpu_util_percent", gpu.utilization_percent);
    add("gpu_mem_used_bytes", gpu.memory_used_bytes);
    add("gpu_power_w", gpu.power_w);
    add("gpu_temp_c", gpu.temperature_c);
    add("gpu_sm_mhz", gpu.sm_mhz);
    add("gpu_mem_mhz", gpu.memory_mhz);
    if (gpu.clock_reasons) (*line)["gpu_clocks"] = clock_reason_words(*gpu.clock_reasons);
}

std::string line_of(const Json& object) {
    return object.dump() + "\n";  // numbers that are not finite become null
}

}  // namespace

std::string to_json_line(const StepRecord& r) {
    constexpr const char* kHexDigits = "0123456789abcdef";
    std::string hash;
    for (int shift = 60; shift >= 0; shift -= 4)
        hash += kHexDigits[(r.token_hash >> shift) & 15U];
    Json line = {{"step", r.step},
                 {"epoch", r.epoch},
                 {"loss", r.loss},
                 {"grad_norm", r.grad_norm},
                 {"lr", r.lr},
                 {"tokens", r.tokens},
                 {"tokens_per_s", r.tokens_per_s},
                 {"step_ms", r.step_ms},
                 {"forward_ms", r.forward_ms},
                 {"backward_ms", r.backward_ms},
                 {"optimizer_ms", r.optimizer_ms},
                 {"comm_exposed_ms", r.comm_exposed_ms},
                 {"data_wait_ms", r.data_wait_ms},
                 {"token_hash", hash}};
    add_gpu(r.gpu, &line);
    return line_of(line);
}

MetricsWriter::MetricsWriter(const std::string& folder, std::int64_t first_step)
    : MetricsWriter(folder, folder + "/metrics.jsonl", first_step) {}

MetricsWriter::MetricsWriter(const std::string& folder,
                             const std::string& path,
                             std::int64_t first_step)
    : tensorboard_(folder, first_step) {
    const Tail tail = repair(path);
    torn_bytes_ = tail.torn_bytes;
    lines_ = AppendFile(path, AppendFile::Open::append);
    if (tail.last_step >= first_step) {
        lines_.append(line_of({{"event", "start"}, {"first_step", first_step}}));
    }
}

void MetricsWriter::step(const StepRecord& r) {
    lines_.append(to_json_line(r));
    tensorboard_.write(r.step, {{"loss", r.loss},
                                {"learning_rate", r.lr},
                                {"step", static_cast<double>(r.step)},
                                {"epoch", r.epoch},
                                {"tokens_per_s", r.tokens_per_s},
                                {"grad_norm", r.grad_norm},
                                {"step_ms", r.step_ms},
                                {"data_wait_ms", r.data_wait_ms}});
}

void MetricsWriter::validation(const EvalRecord& r) {
    lines_.append(line_of({{"step", r.step}, {"val_loss", r.loss}, {"val_tokens", r.tokens}}));
    tensorboard_.write(r.step, {{"val_loss", r.loss}});
}

void MetricsWriter::test(const EvalRecord& r) {
    lines_.append(line_of({{"step", r.step}, {"test_loss", r.loss}, {"test_tokens", r.tokens}}));
    tensorboard_.write(r.step, {{"test_loss", r.loss}});
}

void MetricsWriter::sync() {
    lines_.sync();
    tensorboard_.sync();
}

}  // namespace ingot
