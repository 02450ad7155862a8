#include "engine/train/memory_plan.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <omp.h>

#include "engine/core/device_error.h"
#include "engine/core/host.h"
#include "engine/train/batch_feeder.h"
#include "engine/train/console.h"
#include "engine/train/evaluator.h"
#include "engine/train/hf_weights.h"
#include "engine/train/optimizer.h"
#include "kernels/matmul.h"

namespace ingot {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr const char* kCudnnWorkspace = "cuDNN workspace (estimate)";

struct Card {
    const char* name;
    const char* device_name;  // words of the name that the driver gives it
    std::int64_t total_mib;   // as nvidia-smi shows it
};
constexpr Card kCards[] = {
    {"a100-40", "A100", 40960}, {"a100-80", "A100", 81920}, {"h100-80", "H100", 81559},
    {"h200", "H200", 143771},   {"l40s", "L40S", 46068},    {"rtx4090", "RTX 4090", 24564},
};

struct Peak {
    const char* device_name;
    double tflops;  // dense bf16, vendor's datasheet
};
// The first whose words are in the name counts.
constexpr Peak kPeaks[] = {
    {"A100", 312.0},     {"H100 PCIe", 756.0}, {"H100 NVL", 835.0}, {"H100", 989.0},
    {"H200 NVL", 835.0}, {"H200", 989.0},      {"L40S", 362.0},     {"RTX 4090", 165.0},
};
// Context and the code of kernels and libraries, an estimate: what one H200 (driver 580, CUDA 13.0)
// used beyond the arenas in five runs of gpt2-51m and gpt2-124m from 1.4 to 21.6 GiB was 538 to 542
// MiB, before step 1 and at the end alike; with cuDNN's attention 550 MiB. Other cards have other
// numbers of multiprocessors and drivers, and a run shows its own figure.
constexpr std::int64_t kCudaFixedBytes = 540 * kMiB;
// Heap of the program and its libraries; for each computing thread its stack and OpenBLAS' packing
// buffer, of which matrices touch more the larger they are. Measured with gpt2-tiny: 8.5 MiB on one
// thread with 16 rows, 12 to 14 MiB on two threads with 2048 rows.
constexpr std::int64_t kCpuFixedBytes = 7 * kMiB;
constexpr std::int64_t kCpuBytesPerThread = 3 * kMiB;

std::int64_t control_group_limit_bytes() {
    std::ifstream file("/sys/fs/cgroup/memory.max");
    std::string word;
    file >> word;
    const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
    return is_number && word.size() < 19 ? std::stoll(word) : -1;
}

// "RTX A1000" does not hold the word A100.
bool has_words(const std::string& name, const std::string& words) {
    const auto ends_at = [&](std::size_t place) {
        return place >= name.size() || std::isalnum(static_cast<unsigned char>(name[place])) == 0;
    };
    for (auto at = name.find(words); at != name.npos; at = name.find(words, at + 1)) {
        if ((at == 0 || ends_at(at - 1)) && ends_at(at + words.size())) return true;
    }
    return false;
}

std::int64_t device_bytes_of(MemoryRequest request) {
    return plan_memory(request).device_bytes();
}

}  // namespace

double known_peak_flops(const std::string& device_name) {
    for (const char* part_or_smaller : {"MIG", "Laptop", "Max-Q", "RTX 4090 D"}) {
        if (has_words(device_name, part_or_smaller)) return 0.0;
    }
    for (const Peak& peak : kPeaks) {
        if (has_words(device_name, peak.device_name)) return peak.tflops * 1e12;
    }
    return 0.0;
}

DeviceDescription describe_device(const std::string& name) {
    if (name == "cpu") return describe_this_cpu();
    std::string known = "cpu";
    for (const Card& card : kCards) {
        if (name == card.name) {
            DeviceDescription gpu;
            gpu.name = name;
            gpu.device = Device::cuda;
            gpu.total_bytes = card.total_mib * kMiB;
            gpu.fixed_bytes = kCudaFixedBytes;
            gpu.peak_flops = known_peak_flops(card.device_name);
            return gpu;
        }
        known += str(", ", card.name);
    }
    fail("plan.gpu", "plan.gpu = ", name, " is unknown; use one of ", known);
}

DeviceDescription describe_this_cpu() {
    DeviceDescription cpu;
    cpu.name = "cpu";
    cpu.fixed_bytes = kCpuFixedBytes + omp_get_max_threads() * kCpuBytesPerThread;
    cpu.total_bytes = std::max<std::int64_t>(0, available_memory_bytes());
    const std::int64_t limit = control_group_limit_bytes();
    if (limit >= 0) cpu.total_bytes = std::min(cpu.total_bytes, limit);
    return cpu;
}

DeviceDescription describe_this_gpu(int device_index) {
    const DeviceInfo info = cuda_device_info(device_index);
    DeviceDescription gpu;
    gpu.name = info.name;
    gpu.device = Device::cuda;
    gpu.total_bytes = info.total_bytes;
    gpu.fixed_bytes = kCudaFixedBytes;
    gpu.free_bytes = info.free_bytes;
    gpu.processes = processes_on_gpu(info.pci_bus_id);
    gpu.peak_flops = known_peak_flops(info.name);
    return gpu;
}

std::int64_t MemoryPlan::device_bytes() const {
    std::int64_t sum = 0;
    for (const MemoryItem& item : items)
        sum += item.is_on_host ? 0 : item.bytes;
    return sum;
}

std::int64_t MemoryPlan::host_bytes() const {
    std::int64_t sum = 0;
    for (const MemoryItem& item : items)
        sum += item.is_on_host ? item.bytes : 0;
    return sum;
}

std::int64_t MemoryPlan::exact_bytes() const {
    std::int64_t sum = 0;
    for (const MemoryItem& item : items)
        sum += item.is_exact ? item.bytes : 0;
    return sum;
}

void MemoryPlan::set_cudnn_workspace(std::int64_t bytes) {
    for (MemoryItem& item : items) {
        if (item.name == kCudnnWorkspace) item = {"cuDNN workspace", bytes, true, false};
    }
}

MemoryPlan plan_memory(const MemoryRequest& r) {
    const ParamTable table = make_gpt2_param_table(r.model);
    const ActivationPlan activations = plan_activations(r.model, r.activations);
    const OptimizerPlan optimizer = plan_optimizer(table, r.target.device);
    const bool pinned_is_host = r.target.device == Device::cuda;
    const std::int64_t B = r.activations.B;
    const std::int64_t T = r.activations.T;

    std::int64_t bytes_by_kind[4] = {};  // params, grads, master, moments
    const ParamStorePlan store = plan_param_store(table, r.params);
    const auto region_bytes = [&](int region) {
        return region < 0
                   ? 0
                   : store.arena.regions()[static_cast<std::size_t>(region)].shape.size_bytes();
    };
    for (const ParamStorePlan::Group& group : store.groups) {
        bytes_by_kind[0] += region_bytes(group.params);
        bytes_by_kind[1] += region_bytes(group.grads);
        bytes_by_kind[2] += group.master == group.params ? 0 : region_bytes(group.master);
        bytes_by_kind[3] += region_bytes(group.m) + region_bytes(group.v);
    }
    // Alignment of the regions goes to the parameters' line.
    const std::int64_t parts =
        bytes_by_kind[0] + bytes_by_kind[1] + bytes_by_kind[2] + bytes_by_kind[3];
    bytes_by_kind[0] += store.arena.size_bytes() - parts;

    MemoryPlan plan;
    const auto add = [&](const char* name, std::int64_t bytes, bool on_host = false,
                         bool exact = true) {
        if (bytes > 0) plan.items.push_back({name, bytes, exact, on_host});
    };
    add("parameters", bytes_by_kind[0]);
    add("gradients", bytes_by_kind[1]);
    add("master weights", bytes_by_kind[2]);
    add("AdamW moments", bytes_by_kind[3]);
    add("activations", activations.saved.size_bytes());
    add("scratch", activations.scratch.size_bytes());
    if (r.target.device == Device::cuda) add("matmul workspace", cuda::kMatmulWorkspaceBytes);
    add(kCudnnWorkspace,
        estimate_attention_workspace_bytes(attention_preparation(r.model, r.activations)), false,
        false);
    add("batches",
        BatchFeeder::plan(B, T).size_bytes() + Evaluator::plan_device(B, T).size_bytes());
    add("optimizer scalars", optimizer.arena.size_bytes());
    add("pinned memory",
        optimizer.pinned.size_bytes() + Evaluator::plan_pinned(B, T).size_bytes() +
            loader_memory_numel(r.loader) * 4,
        pinned_is_host);
    add("fixed (estimate)", r.target.fixed_bytes, false, false);
    plan.staging_bytes = hf_staging_bytes(table);
    return plan;
}

std::vector<MemoryRemedy> memory_remedies(const MemoryRequest& request) {
    std::vector<MemoryRemedy> remedies;
    const std::int64_t now = device_bytes_of(request);
    const std::int64_t lag = result_lag(request.target.device);
    const auto add = [&](const std::string& change, const MemoryRequest& changed) {
        const std::int64_t bytes = device_bytes_of(changed);
        if (bytes < now) remedies.push_back({change, bytes});
    };
    if (request.activations.B > 1) {
        MemoryRequest r = request;
        r.activations.B = r.loader.micro_batch = request.activations.B / 2;
        r.loader.global_batch = r.loader.micro_batch * request.world_size;
        r.loader = hold_batches(r.loader, lag);
        add(str("train.micro_batch = ", r.activations.B, ", a smaller global batch"), r);
    }
    if (request.activations.T > 1) {
        MemoryRequest r = request;
        r.activations.T = r.loader.seq_len = request.activations.T / 2;
        add(str("train.seq_len = ", r.activations.T), r);
    }
    for (const Recompute recompute : {Recompute::light, Recompute::block}) {
        if (static_cast<int>(recompute) <= static_cast<int>(request.activations.recompute))
            continue;
        MemoryRequest r = request;
        r.activations.recompute = recompute;
        add(str("model.recompute = ", name_of(recompute)), r);
    }
    if (request.activations.B > 1) {
        MemoryRequest r = request;
        r.activations.B = r.loader.micro_batch = 1;
        r.loader = hold_batches(r.loader, lag);
        add(str("train.micro_batch = 1 with the same train.global_batch (accumulation ",
                request.grad_accum_steps * request.activations.B, ")"),
            r);
    }
    if (request.params.params == DType::f32 || request.params.grads == DType::f32) {
        MemoryRequest r = request;
        r.params.params = r.params.grads = r.activations.dtype = DType::bf16;
        add("precision.params = bf16, precision.grad_accum = bf16", r);
    }
    if (request.activations.attention == AttentionMethod::cudnn) {
        MemoryRequest r = request;
        r.activations.deterministic = false;
        add("train.deterministic = false, cuDNN's sums in any order", r);
        r = request;
        r.activations.attention = AttentionMethod::automatic;
        add("model.attention = auto", r);
    }
    // ZeRO-1 shares master weights and moments between the ranks.
    for (const int ranks : {8, 32}) {
        std::int64_t shared = 0;
        for (const MemoryItem& item : plan_memory(request).items) {
            if (item.name == "master weights" || item.name == "AdamW moments") shared += item.bytes;
        }
        remedies.push_back(
            {str("ZeRO-1 on ", ranks, " GPUs (a later release)"), now - shared + shared / ranks});
    }
    return remedies;
}

std::string format_plan(const MemoryRequest& request, const MemoryPlan& plan) {
    std::string text =
        str("memory plan for ", request.target.name, ", ", request.activations.B, " x ",
            request.activations.T, " tokens a micro-step, recompute ",
            name_of(request.activations.recompute), ", ", name_of(request.params.params),
            " parameters, ", name_of(request.params.grads), " gradients\n");
    const auto line = [&](const std::string& name, std::int64_t bytes, const char* note) {
        std::string row = "  " + name;
        row.resize(std::max<std::size_t>(row.size(), 28), ' ');
        std::string value = format_bytes(bytes);
        row += std::string(value.size() < 12 ? 12 - value.size() : 1, ' ') + value;
        text += row + note + "\n";
    };
    for (const MemoryItem& item : plan.items) {
        line(item.name, item.bytes, item.is_on_host ? "  (host)" : "");
    }
    line("total", plan.device_bytes(), "");
    if (plan.host_bytes() > 0) line("total on the host", plan.host_bytes(), "");
    line("while weights are saved", plan.staging_bytes, "  (host, for a moment)");
    line("available", request.target.total_bytes, "");
    return text;
}

void require_fits(const MemoryRequest& request, const MemoryPlan& plan) {
    const bool staging_counts = request.target.device == Device::cpu;
    const std::int64_t peak_bytes = plan.device_bytes() + (staging_counts ? plan.staging_bytes : 0);
    const std::int64_t free_bytes = request.target.free_bytes;
    // The context of this process, the larger part of what the estimate stands for, is no more
    // free.
    const bool is_crowded =
        free_bytes >= 0 && plan.device_bytes() - request.target.fixed_bytes > free_bytes;
    if (peak_bytes <= request.target.total_bytes && !is_crowded) return;
    std::string remedies;
    for (const MemoryRemedy& remedy : memory_remedies(request)) {
        remedies += str("\n  ", remedy.change, ": ", format_bytes(remedy.device_bytes));
    }
    if (peak_bytes <= request.target.total_bytes) {
        fail(
            "memory.device_busy", "memory: the plan needs ", format_bytes(peak_bytes), " (",
            peak_bytes, " bytes), which ", request.target.name, " has, but only ",
            describe_gpu_memory(free_bytes, request.target.total_bytes, request.target.processes),
            ". Wait until it is free, choose another device with CUDA_VISIBLE_DEVICES, or, in this "
            "order:",
            remedies);
    }
    fail("memory.plan_too_large", "memory: the plan needs ", format_bytes(peak_bytes), " (",
         peak_bytes, " bytes), ", request.target.name, " has ",
         format_bytes(request.target.total_bytes), " (", request.target.total_bytes,
         " bytes). What helps, in this order:", remedies, "\n", format_plan(request, plan));
}

std::int64_t used_memory_bytes(const Context& context) {
    if (context.device() == Device::cuda) {
        const DeviceInfo info = cuda_device_info(context.device_index());
        return info.total_bytes - info.free_bytes;
    }
    return std::max<std::int64_t>(0, anonymous_memory_bytes());
}

}  // namespace ingot
