// Goal: the plan is what a run allocates, remedies make it smaller, what does not fit is refused
// before anything is allocated. The comparison with a running trainer is in test_trainer.
#include <doctest/doctest.h>

#include "engine/train/batch_feeder.h"
#include "engine/train/console.h"
#include "engine/train/memory_plan.h"
#include "engine/train/optimizer.h"

using namespace ingot;

namespace {

MemoryRequest request_for(const std::string& model, const std::string& device) {
    MemoryRequest r;
    r.model = preset(model);
    r.target = describe_device(device);
    r.activations.B = r.loader.micro_batch = r.loader.global_batch = 4;
    r.activations.T = r.loader.seq_len = 256;
    r.activations.device = r.target.device;
    r.loader.workers = 2;
    r.loader = hold_batches(r.loader, result_lag(r.target.device));
    return r;
}

std::int64_t bytes_of(const MemoryPlan& plan, const std::string& name) {
    for (const MemoryItem& item : plan.items) {
        if (item.name == name) return item.bytes;
    }
    return 0;
}

}  // namespace

TEST_CASE("memory plan: a card's peak is that of its kind, and none when its kind is not known") {
    CHECK(known_peak_flops("NVIDIA A100-SXM4-80GB") == 312e12);
    CHECK(known_peak_flops("NVIDIA H100 80GB HBM3") == 989e12);
    CHECK(known_peak_flops("NVIDIA H100 PCIe") == 756e12);
    CHECK(known_peak_flops("NVIDIA H200") == 989e12);
    CHECK(known_peak_flops("NVIDIA H200 NVL") == 835e12);
    CHECK(known_peak_flops("NVIDIA GeForce RTX 4090") == 165e12);
    CHECK(known_peak_flops("NVIDIA RTX A1000") == 0.0);
    CHECK(known_peak_flops("NVIDIA GH200 480GB") == 0.0);
    CHECK(known_peak_flops("NVIDIA A100-SXM4-40GB MIG 3g.20gb") == 0.0);
    CHECK(known_peak_flops("NVIDIA GeForce RTX 4090 Laptop GPU") == 0.0);
    CHECK(known_peak_flops("NVIDIA GeForce RTX 4090 D") == 0.0);
    CHECK(describe_device("h100-80").peak_flops == 989e12);
}

TEST_CASE("memory plan: parameters, gradients and moments of GPT-2 124M in fp32") {
    const MemoryPlan plan = plan_memory(request_for("gpt2-124m", "cpu"));
    // Padded vocabulary: 47 rows more than 124,439,808 parameters; alignment adds nothing at 768.
    const std::int64_t numel = 124439808 + 47 * 768;
    CHECK(bytes_of(plan, "parameters") == 4 * numel);
    CHECK(bytes_of(plan, "gradients") == 4 * numel);
    CHECK(bytes_of(plan, "AdamW moments") == 8 * numel);
    CHECK(bytes_of(plan, "master weights") == 0);
}

TEST_CASE("memory plan: bf16 parameters add master weights") {
    MemoryRequest r = request_for("gpt2-124m", "cpu");
    r.params.params = r.activations.dtype = DType::bf16;
    const MemoryPlan plan = plan_memory(r);
    const std::int64_t numel = 124439808 + 47 * 768;
    CHECK(bytes_of(plan, "parameters") == 2 * numel);
    CHECK(bytes_of(plan, "master weights") == 4 * numel);
}

TEST_CASE("memory plan: what does not fit is refused with both numbers and remedies in order") {
    MemoryRequest r = request_for("gpt2-1558m", "cpu");
    r.target.total_bytes = std::int64_t{10} << 30;
    const MemoryPlan plan = plan_memory(r);
    try {
        require_fits(r, plan);
        FAIL("was not refused");
    } catch (const Error& error) {
        const std::string text = error.what();
        CHECK(std::string(error.code()) == "memory.plan_too_large");
        CHECK(text.find(str(plan.device_bytes() + plan.staging_bytes, " bytes")) !=
              std::string::npos);
        CHECK(text.find(str(r.target.total_bytes, " bytes")) != std::string::npos);
        std::size_t at = 0;
        for (const char* remedy :
             {"train.micro_batch = 2", "train.seq_len = 128", "model.recompute = light",
              "model.recompute = block", "train.micro_batch = 1 with the same train.global_batch",
              "precision.params = bf16", "ZeRO-1 on 8 GPUs"}) {
            CAPTURE(remedy);
            const std::size_t next = text.find(remedy, at);
            CHECK(next != std::string::npos);
            at = next == std::string::npos ? at : next;
        }
    }
    r.target.total_bytes = plan.device_bytes() + plan.staging_bytes;
    CHECK_NOTHROW(require_fits(r, plan));
}

TEST_CASE("memory plan: what would fit but for other processes is refused, and they are named") {
    MemoryRequest r = request_for("gpt2-124m", "h200");
    const MemoryPlan plan = plan_memory(r);
    const std::int64_t needed = plan.device_bytes() - r.target.fixed_bytes;
    CHECK_NOTHROW(require_fits(r, plan));  // a card by name: nobody knows who is on it
    r.target.free_bytes = needed;
    CHECK_NOTHROW(require_fits(r, plan));
    r.target.free_bytes = needed - 1;
    r.target.processes = {{4194305, "python3", std::int64_t{120} << 30}, {4194306, "", {}}};
    try {
        require_fits(r, plan);
        FAIL("was not refused");
    } catch (const Error& error) {
        const std::string text = error.what();
        CAPTURE(text);
        CHECK(std::string(error.code()) == "memory.device_busy");
        CHECK(text.find(str("the plan needs ", format_bytes(plan.device_bytes()))) !=
              std::string::npos);
        CHECK(
            text.find(str("only ", needed - 1, " of ", r.target.total_bytes,
                          " bytes are free; other processes on it: 4194305 python3 120.00 GiB")) !=
            std::string::npos);
        CHECK(text.find("4194306 (unknown here)") != std::string::npos);
        CHECK(text.find("train.micro_batch = 2") != std::string::npos);
    }
    r.target.total_bytes = needed;  // too large for the card itself: that is said instead
    CHECK_THROWS_WITH_AS(require_fits(r, plan), doctest::Contains("What helps, in this order"),
                         Error);
}

TEST_CASE("memory plan: every remedy is smaller than the plan, the text names every part") {
    const MemoryRequest r = request_for("gpt2-tiny", "cpu");
    const MemoryPlan plan = plan_memory(r);
    CHECK(memory_remedies(r).size() >= 6);
    for (const MemoryRemedy& remedy : memory_remedies(r)) {
        CAPTURE(remedy.change);
        CHECK(remedy.device_bytes < plan.device_bytes());
    }
    const std::string text = format_plan(r, plan);
    for (const MemoryItem& item : plan.items) {
        CHECK(text.find(item.name) != std::string::npos);
        CHECK(text.find(format_bytes(item.bytes)) != std::string::npos);
    }
}

TEST_CASE("memory plan: cuDNN's workspace is an estimate until it is known, and can be avoided") {
    MemoryRequest r = request_for("gpt2-124m", "h200");
    const MemoryPlan without = plan_memory(r);
    r.activations.dtype = DType::bf16;
    r.activations.attention = AttentionMethod::cudnn;
    MemoryPlan plan = plan_memory(r);
    // For each of 4 x 12 heads 256 x 256 of bf16 and 256 fp32 sums, and what forward takes.
    const std::int64_t bytes = 48 * 256 * 256 * 2 + 48 * 256 * 4 + 256;
    CHECK(bytes_of(plan, "cuDNN workspace (estimate)") == bytes);
    CHECK(bytes_of(without, "cuDNN workspace (estimate)") == 0);
    const std::int64_t exact = plan.exact_bytes();
    const std::int64_t device = plan.device_bytes();
    plan.set_cudnn_workspace(bytes - 100);
    CHECK(bytes_of(plan, "cuDNN workspace (estimate)") == 0);
    CHECK(bytes_of(plan, "cuDNN workspace") == bytes - 100);
    CHECK(plan.exact_bytes() == exact + bytes - 100);
    CHECK(plan.device_bytes() == device - 100);

    r.activations.T = r.loader.seq_len = 1024;  // (T, T) per head is more than fp32 sums of dq
    std::string changes;
    for (const MemoryRemedy& remedy : memory_remedies(r))
        changes += remedy.change + "\n";
    CHECK(changes.find("train.deterministic = false") != std::string::npos);
    CHECK(changes.find("model.attention = auto") != std::string::npos);
}

TEST_CASE("memory plan: saving weights needs one transposed tensor twice, not the model") {
    const MemoryPlan plan = plan_memory(request_for("gpt2-124m", "cpu"));
    CHECK(plan.staging_bytes == 2 * 4 * 768 * 3072);
}

// The same numbers in every build: the sizes of CUDA's scratch are functions of the shape alone.
TEST_CASE(
    "memory plan: a card's scratch is planned to the byte, with and without CUDA in the build") {
    MemoryRequest r = request_for("gpt2-124m", "h200");
    r.activations.B = r.loader.micro_batch = r.loader.global_batch = 64;
    r.activations.T = r.loader.seq_len = 1024;
    r.activations.dtype = r.params.params = DType::bf16;
    const ActivationPlan activations = plan_activations(r.model, r.activations);
    const auto& op_scratch =
        activations.scratch.regions()[static_cast<std::size_t>(activations.op_scratch)];
    // The largest is flash attention's: flags, row statistics, and a ring of 64 heads for dQ.
    CHECK(op_scratch.shape.size_bytes() == 4352 + 768 * 1024 * 8 + 64 * 1024 * 64 * 4);
    const MemoryPlan plan = plan_memory(r);
    CHECK(bytes_of(plan, "scratch") == activations.scratch.size_bytes());
    CHECK(bytes_of(plan, "matmul workspace") == (64 << 20) + 256);
    CHECK(bytes_of(plan, "scratch") == 636'489'984);
    CHECK(plan.host_bytes() == bytes_of(plan, "pinned memory"));
    CHECK(plan.device_bytes() ==
          plan.exact_bytes() - plan.host_bytes() + bytes_of(plan, "fixed (estimate)"));
    for (const char* card : {"a100-80", "h100-80"}) {
        r.target = describe_device(card);
        CHECK(plan_memory(r).exact_bytes() == plan.exact_bytes());
    }
    r.target = describe_device("cpu");
    CHECK(bytes_of(plan_memory(r), "matmul workspace") == 0);
}

// Of 64 x 1024 tokens: the optimizer's two rings, a validation batch, and the loader's batches,
// 16 bytes a token: those of two steps held, those of one step, and at least 4, prepared.
TEST_CASE("memory plan: pinned memory grows with the batches that two steps hold") {
    MemoryRequest r = request_for("gpt2-124m", "h200");
    r.activations.B = r.loader.micro_batch = 64;
    r.activations.T = r.loader.seq_len = 1024;
    constexpr std::int64_t kTokens = 64 * 1024;
    const OptimizerPlan optimizer = plan_optimizer(make_gpt2_param_table(r.model), Device::cuda);
    const std::int64_t others = optimizer.pinned.size_bytes() + 8 * kTokens;
    const auto pinned_for = [&](std::int64_t micro_steps) {
        r.loader.global_batch = 64 * micro_steps;
        r.loader.prefetch = LoaderConfig{}.prefetch;
        r.loader = hold_batches(r.loader, result_lag(Device::cuda));
        return plan_memory(r).host_bytes();
    };
    CHECK(pinned_for(1) == others + (2 + 4) * 16 * kTokens);
    CHECK(pinned_for(8) == others + (16 + 8) * 16 * kTokens);
}

TEST_CASE("memory plan: accumulating smaller batches on the CPU holds as many tokens") {
    MemoryRequest r = request_for("gpt2-tiny", "cpu");
    r.loader.global_batch = 32;  // 8 micro-steps of 4
    r.loader = hold_batches(r.loader, 0);
    r.grad_accum_steps = 8;
    for (const MemoryRemedy& remedy : memory_remedies(r)) {
        if (remedy.change.find("micro_batch = 1 ") == std::string::npos) continue;
        MemoryRequest changed = r;
        changed.activations.B = changed.loader.micro_batch = 1;
        changed.loader.held = 32;
        CHECK(remedy.device_bytes == plan_memory(changed).device_bytes());
        return;
    }
    FAIL("no such remedy");
}

TEST_CASE("memory plan: cards are known by name, others are refused") {
    CHECK(describe_device("h200").total_bytes == std::int64_t{143771} << 20);
    CHECK(describe_device("a100-80").device == Device::cuda);
    CHECK(describe_device("cpu").total_bytes > 0);
    CHECK_THROWS_WITH_AS(describe_device("v100"), doctest::Contains("plan.gpu = v100 is unknown"),
                         Error);
}

TEST_CASE("memory plan: what this process uses grows with what it touches") {
    const auto context = Context::make_cpu();
    const std::int64_t before = used_memory_bytes(*context);
    const Buffer buffer(*context, 64 << 20, "64 MiB");
    const std::int64_t grown = used_memory_bytes(*context) - before;
    CHECK(grown > 60 << 20);
    CHECK(grown < 70 << 20);
}
