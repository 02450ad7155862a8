// Names that are no keys of this release: later keys of the contract, other trainers' names, typing
// errors.
#include <algorithm>
#include <numeric>

#include "engine/core/check.h"
#include "engine/train/config_table.h"

namespace ingot {
namespace {

constexpr const char* kTransformers = "Hugging Face Trainer";
constexpr const char* kTorchrun = "torchrun";
constexpr const char* kDeepSpeed = "DeepSpeed";
constexpr const char* kNanoGpt = "nanoGPT";
constexpr const char* kLlmC = "llm.c";

// What another trainer calls something. `ours` is a key of ours, or "" where there is none.
struct ForeignName {
    const char* name;
    const char* origin;
    const char* ours;
    const char* note;
};

const std::vector<ForeignName>& foreign_names() {
    static const std::vector<ForeignName> table = {
        {"per_device_train_batch_size", kTransformers, "train.micro_batch", ""},
        {"per_gpu_train_batch_size", kTransformers, "train.micro_batch", ""},
        {"per_device_eval_batch_size", kTransformers, "train.micro_batch",
         "validation uses the micro-batch of training"},
        {"gradient_accumulation_steps", kTransformers, "train.global_batch",
         "global_batch = micro_batch x accumulation x ranks"},
        {"bf16", kTransformers, "precision.params", "bf16=true is precision.params=bf16"},
        {"fp16", kTransformers, "precision.params", "there is no fp16, use bf16 or fp32"},
        {"tf32", kTransformers, "precision.params", "fp32 never uses TF32, use bf16 for speed"},
        {"gradient_checkpointing", kTransformers, "model.recompute", "true is block"},
        {"dataloader_num_workers", kTransformers, "data.workers", ""},
        {"save_steps", kTransformers, "checkpoint.every", ""},
        {"save_strategy", kTransformers, "checkpoint.every", ""},
        {"save_total_limit", kTransformers, "checkpoint.keep", ""},
        {"learning_rate", kTransformers, "optimizer.lr", ""},
        {"num_train_epochs", kTransformers, "train.epochs", ""},
        {"max_steps", kTransformers, "train.steps", ""},
        {"warmup_ratio", kTransformers, "schedule.warmup_steps", "warmup_steps = ratio x steps"},
        {"lr_scheduler_type", kTransformers, "schedule.kind",
         "constant, linear, cosine or wsd (warmup_stable_decay)"},
        {"lr_scheduler_kwargs", kTransformers, "schedule.final_lr_ratio", ""},
        {"logging_dir", kTransformers, "log.dir", ""},
        {"logging_steps", kTransformers, "", "every step is logged to metrics.jsonl"},
        {"report_to", kTransformers, "log.dir",
         "metrics.jsonl and TensorBoard events are always written there"},
        {"run_name", kTransformers, "log.dir", ""},
        {"output_dir", kTransformers, "checkpoint.dir", ""},
        {"overwrite_output_dir", kTransformers, "checkpoint.resume",
         "a folder is never overwritten: choose a new log.dir, or go on with auto"},
        {"resume_from_checkpoint", kTransformers, "checkpoint.resume", ""},
        {"max_grad_norm", kTransformers, "optimizer.grad_clip", ""},
        {"adam_beta1", kTransformers, "optimizer.beta1", ""},
        {"adam_beta2", kTransformers, "optimizer.beta2", ""},
        {"adam_epsilon", kTransformers, "optimizer.eps", ""},
        {"optim", kTransformers, "", "AdamW is the only optimizer"},
        {"eval_steps", kTransformers, "eval.every", ""},
        {"eval_strategy", kTransformers, "eval.every", ""},
        {"evaluation_strategy", kTransformers, "eval.every", ""},
        {"data_seed", kTransformers, "train.seed", ""},
        {"full_determinism", kTransformers, "train.deterministic", ""},
        {"use_cpu", kTransformers, "train.device", "true is cpu"},
        {"no_cuda", kTransformers, "train.device", "true is cpu"},
        {"model_name_or_path", kTransformers, "model.hf", "a folder on this machine"},
        {"max_seq_length", kTransformers, "train.seq_len", ""},
        {"max_length", kTransformers, "train.seq_len", ""},
        {"train_file", kTransformers, "data.train",
         "token shards; make them with tools/prepare_data.py"},
        {"validation_file", kTransformers, "data.val",
         "token shards; make them with tools/prepare_data.py"},
        {"tokenizer_name", kTransformers, "",
         "the shards carry their tokenizer; give it to tools/prepare_data.py"},
        {"attn_implementation", kTransformers, "model.attention", ""},
        {"torch_compile", kTransformers, "", "there is nothing to compile"},
        {"ddp_timeout", kTransformers, "parallel.timeout_s", ""},
        {"fsdp", kTransformers, "parallel.zero_stage", ""},
        {"deepspeed", kTransformers, "parallel.zero_stage", ""},
        {"nproc_per_node", kTorchrun, "", "start N ranks with mpirun -np N ./train_gpt"},
        {"nnodes", kTorchrun, "", "list the machines in a file for mpirun -hostfile"},
        {"node_rank", kTorchrun, "", "ranks come from the launcher"},
        {"local_rank", kTorchrun, "", "ranks come from the launcher"},
        {"master_addr", kTorchrun, "", "ranks come from the launcher"},
        {"master_port", kTorchrun, "parallel.port_offset", ""},
        {"rdzv_backend", kTorchrun, "parallel.bootstrap", ""},
        {"rdzv_endpoint", kTorchrun, "parallel.bootstrap", ""},
        {"standalone", kTorchrun, "", "one process needs no launcher"},
        {"train_micro_batch_size_per_gpu", kDeepSpeed, "train.micro_batch", ""},
        {"train_batch_size", kDeepSpeed, "train.global_batch", ""},
        {"gradient_clipping", kDeepSpeed, "optimizer.grad_clip", ""},
        {"zero_optimization", kDeepSpeed, "parallel.zero_stage", ""},
        {"batch_size", kNanoGpt, "train.micro_batch", ""},
        {"block_size", kNanoGpt, "train.seq_len", ""},
        {"max_iters", kNanoGpt, "train.steps", ""},
        {"lr_decay_iters", kNanoGpt, "schedule.kind", "the decay ends at the last step"},
        {"min_lr", kNanoGpt, "schedule.final_lr_ratio", "final_lr_ratio = min_lr / lr"},
        {"decay_lr", kNanoGpt, "schedule.kind", "false is constant"},
        {"warmup_iters", kNanoGpt, "schedule.warmup_steps", ""},
        {"eval_interval", kNanoGpt, "eval.every", ""},
        {"eval_iters", kNanoGpt, "eval.batches", ""},
        {"log_interval", kNanoGpt, "", "every step is logged to metrics.jsonl"},
        {"init_from", kNanoGpt, "model.init", ""},
        {"dataset", kNanoGpt, "data.train", "a glob of token shards"},
        {"out_dir", kNanoGpt, "checkpoint.dir", ""},
        {"always_save_checkpoint", kNanoGpt, "checkpoint.every", ""},
        {"dtype", kNanoGpt, "precision.params", "bfloat16 is bf16, float32 is fp32"},
        {"compile", kNanoGpt, "", "there is nothing to compile"},
        {"backend", kNanoGpt, "parallel.comm", ""},
        {"n_layer", kNanoGpt, "model.preset", "or a config.json of your own and model.hf"},
        {"n_head", kNanoGpt, "model.preset", "or a config.json of your own and model.hf"},
        {"n_embd", kNanoGpt, "model.preset", "or a config.json of your own and model.hf"},
        {"dropout", kNanoGpt, "", "there is no dropout"},
        {"wandb_log", kNanoGpt, "log.dir", "metrics.jsonl and TensorBoard events are written"},
        {"i", kLlmC, "data.train", ""},
        {"j", kLlmC, "data.val", ""},
        {"e", kLlmC, "model.preset", ""},
        {"o", kLlmC, "log.dir", ""},
        {"b", kLlmC, "train.micro_batch", ""},
        {"t", kLlmC, "train.seq_len", ""},
        {"d", kLlmC, "train.global_batch", "global_batch counts sequences, -d counts tokens"},
        {"x", kLlmC, "train.steps", ""},
        {"l", kLlmC, "optimizer.lr", ""},
        {"u", kLlmC, "schedule.warmup_steps", ""},
        {"k", kLlmC, "schedule.kind", ""},
        {"q", kLlmC, "schedule.final_lr_ratio", ""},
        {"c", kLlmC, "optimizer.weight_decay", ""},
        {"v", kLlmC, "eval.every", ""},
        {"m", kLlmC, "eval.batches", ""},
        {"s", kLlmC, "sample.every", ""},
        {"g", kLlmC, "sample.tokens", ""},
        {"n", kLlmC, "checkpoint.every", ""},
        {"y", kLlmC, "checkpoint.resume", ""},
        {"a", kLlmC, "train.overfit_one_batch", ""},
        {"r", kLlmC, "model.recompute", ""},
        {"w", kLlmC, "precision.params", "master weights are always fp32"},
        {"z", kLlmC, "parallel.zero_stage", ""}};
    return table;
}

std::string last_part(const std::string& name) {
    const std::size_t dot = name.find_last_of('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
}

// "nproc-per-node" and "nproc_per_node" are one name.
std::string with_underscores(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

int edit_distance(const std::string& a, const std::string& b) {
    std::vector<int> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= a.size(); ++i) {
        int diagonal = row[0];
        row[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const int changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
        }
    }
    return row[b.size()];
}

// What to say about a key that is meant: its help, or that it comes later.
std::string about(const std::string& ours) {
    if (const ConfigKey* key = find_config_key(ours)) return str(" (", key->help, ")");
    if (const LaterKey* later = find_later_key(ours)) {
        return str(", which is not in this release: ", later->instead);
    }
    return "";
}

}  // namespace

const std::vector<LaterKey>& later_keys() {
    static const char* const kOneProcess = "this release trains in one process; leave the key out";
    static const std::vector<LaterKey> table = {
        {"data.document_mask", {"false"}, "attention crosses documents; leave it out or false"},
        {"parallel.zero_stage",
         {"0"},
         "this release trains in one process; leave it out or 0, and use model.recompute and a "
         "smaller train.micro_batch to save memory"},
        {"parallel.shard_group", {"world"}, kOneProcess},
        {"parallel.node_size", {"auto"}, kOneProcess},
        {"parallel.comm", {"auto", "single"}, kOneProcess},
        {"parallel.bootstrap", {"auto"}, kOneProcess},
        {"parallel.share_gpu", {"false"}, kOneProcess},
        {"parallel.deterministic", {"true"}, "everything is deterministic; leave it out or true"},
        {"parallel.timeout_s", {}, kOneProcess},
        {"parallel.heartbeat_s", {}, kOneProcess},
        {"parallel.port_offset", {"0"}, kOneProcess},
        {"precision.moments", {"auto", "fp32"}, "the moments are fp32; leave it out or fp32"},
        {"checkpoint.every",
         {"0"},
         "the checkpoint is written at the end; leave it out or 0, and keep runs short enough to "
         "be repeated"},
        {"checkpoint.keep", {}, "there is one checkpoint, at the end; leave it out"},
        {"checkpoint.keep_every", {"0"}, "there is one checkpoint, at the end; leave it out or 0"},
    };
    return table;
}

const LaterKey* find_later_key(const std::string& name) {
    for (const LaterKey& key : later_keys()) {
        if (name == key.name) return &key;
    }
    return nullptr;
}

std::string nearest_config_key(const std::string& name) {
    const bool has_section = name.find('.') != std::string::npos;
    std::string nearest;
    int least = -1;
    const auto consider = [&](const char* candidate) {
        const std::string whole = candidate;
        const int other_section = has_section ? 1 : 0;
        const int distance =
            std::min(edit_distance(name, whole),
                     edit_distance(last_part(name), last_part(whole)) + other_section);
        if (least >= 0 && distance >= least) return;
        least = distance;
        nearest = whole;
    };
    for (const ConfigKey& key : config_table())
        consider(key.name);
    for (const LaterKey& key : later_keys())
        consider(key.name);
    return nearest;
}

void fail_unknown_key(const std::string& place, const std::string& name, const std::string& value) {
    if (const LaterKey* later = find_later_key(name)) {
        std::string accepted;
        for (const char* word : later->accepted)
            accepted += str(accepted.empty() ? "" : " or ", word);
        fail("config.not_in_release", "config: ", place, ": ", name, " = ", value,
             " is not in this release", accepted.empty() ? "" : str(", allowed ", accepted), "; ",
             later->instead);
    }
    const std::string last = with_underscores(last_part(name));
    for (const ForeignName& foreign : foreign_names()) {
        if (last != foreign.name) continue;
        const std::string ours = foreign.ours;
        const std::string note = foreign.note;
        fail("config.unknown_key", "config: ", place, ": unknown key ", name, " = ", value,
             "; it is a name of ", foreign.origin,
             ours.empty()
                 ? str("; ", note)
                 : str(", here it is ", ours, about(ours), note.empty() ? "" : "; ", note));
    }
    const std::string nearest = nearest_config_key(with_underscores(name));
    fail("config.unknown_key", "config: ", place, ": unknown key ", name, " = ", value,
         "; the nearest key is ", nearest, about(nearest), "; ./train_gpt --help lists all keys");
}

}  // namespace ingot
