// The configuration of a run: one JSON file and `--section.key=value` overrides become one
// TrainConfig. Defaults live in these structs, once. Everything else about a key - its kind, range,
// words and help - is one row of the table behind config_keys(); reading, overrides, range checks,
// `--help`, the resolved dump and docs/config.md are loops over that table.
//
// Refused, with the place (file:line or command line), the key, the value and what is allowed:
// unknown keys (naming the nearest key, and our name for Hugging Face Trainer, torchrun, nanoGPT
// and llm.c names), keys of a later release, duplicate keys, values of another type, NaN and
// infinities, values out of range. Nothing is corrected silently.
//
// A number 0 that the table writes as a word ("auto") is spelled with that word in files and dumps.
// Errors: config.json, config.missing_file, config.unknown_key, config.not_in_release,
// config.duplicate_key, config.type, config.range, config.word, config.combination, config.batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

struct TrainConfig {
    struct Model {
        enum class Init { automatic, hf, scratch };
        enum class Recompute { none, light, block };
        enum class Attention { automatic, own, general, cudnn };

        std::string preset;           // "" = take the architecture from `hf`
        std::string hf;               // directory with config.json, or ""
        Init init = Init::automatic;  // resolved to hf or scratch by check_config()
        std::int64_t vocab_size = 0;  // tokens; 0 = auto: the vocabulary of the shards
        Recompute recompute = Recompute::none;
        Attention attention = Attention::automatic;
    } model;

    struct Data {
        std::string train;  // glob of token shards
        std::string val;    // glob, "" = no validation
        std::string test;   // glob, "" = no test evaluation
        bool shuffle = true;
        std::int64_t workers = 2;  // background threads that prepare batches
    } data;

    struct Train {
        enum class Device { automatic, cpu, cuda };
        enum class Nonfinite { stop, skip };

        Device device = Device::automatic;
        std::int64_t steps = 0;         // optimizer steps; 0 = derived from epochs
        double epochs = 0;              // passes over data.train; 0 = derived from steps
        std::int64_t seq_len = 0;       // tokens; 0 = auto: the model's context length
        std::int64_t micro_batch = 8;   // sequences a rank computes at once
        std::int64_t global_batch = 0;  // sequences a step; 0 = auto: one micro-batch a rank
        std::int64_t seed = 1337;
        bool deterministic = true;  // false: cuDNN's attention may add in any order
        bool overfit_one_batch = false;
        Nonfinite nonfinite = Nonfinite::stop;
        std::int64_t threads = 0;  // CPU threads of a rank; 0 = auto: all cores
        std::string matmul_plans;  // matmul_plans.txt of an earlier run, or "": choose by timing
    } train;

    struct Optimizer {
        double lr = 6e-4;
        double beta1 = 0.9;
        double beta2 = 0.95;
        double eps = 1e-8;
        double weight_decay = 0.1;  // on parameters with 2 or more dimensions
        double grad_clip = 1.0;     // limit of the global gradient norm; 0 = off
    } optimizer;

    struct Schedule {
        enum class Kind { constant, linear, cosine, wsd };

        Kind kind = Kind::cosine;
        std::int64_t warmup_steps = 0;
        double final_lr_ratio = 0.1;  // last step's rate / optimizer.lr
        double decay_fraction = 0.2;  // wsd: part of the steps that decays
    } schedule;

    struct Precision {
        enum class Params { automatic, bf16, fp32 };
        enum class GradAccum { automatic, bf16, fp32 };

        Params params = Params::automatic;            // auto: bf16 on CUDA, fp32 on the CPU
        GradAccum grad_accum = GradAccum::automatic;  // auto: fp32
    } precision;

    struct Checkpoint {
        enum class Resume { automatic, none };

        std::string dir;  // "" = checkpoints in log.dir, by check_config()
        Resume resume = Resume::automatic;
    } checkpoint;

    struct Eval {
        std::int64_t every = 0;     // steps; 0 = at the end only
        std::int64_t batches = 20;  // micro-batches over all ranks; 0 = auto: the whole set
    } eval;

    struct Sample {
        std::int64_t every = 0;  // steps; 0 = at the end only
        std::int64_t tokens = 100;
        double temperature = 0.8;  // 0 = greedy
        std::int64_t top_k = 50;   // 0 = all tokens
    } sample;

    struct Logs {
        std::string dir = "runs/default";
        std::int64_t profile_step = 0;  // its ops are timed; 0 = none
    } log;

    struct Plan {
        std::string gpu;  // "" = auto: this machine's device
        std::int64_t world_size = 1;
    } plan;
};

// One row of the table, as text (see config_table.h for the typed table).
struct ConfigKeyInfo {
    std::string name;     // "train.micro_batch"
    std::string allowed;  // "an integer, 1 <= train.micro_batch <= 65536"
    std::string initial;  // the default as written in a file: "8", "auto", "true"
    std::string help;     // one line
};
std::vector<ConfigKeyInfo> config_keys();

// Reads a JSON file over the defaults. config.missing_file says how to make one.
TrainConfig read_config_file(const std::string& path);
// The same from text; `path` is only named in errors.
void read_config_text(const std::string& text, const std::string& path, TrainConfig& config);
// "train.steps=100" or "--train.steps=100" on top of `config`.
void apply_override(TrainConfig& config, const std::string& assignment);

// What a configuration is for: a plan needs neither steps nor data.
enum class ConfigUse { train, plan };
// Checks keys against each other and resolves model.init and checkpoint.dir. Call once, after the
// last override.
void check_config(TrainConfig& config, ConfigUse use);

// Micro-batches of a rank in a step: global_batch / (micro_batch x world_size). Throws
// config.batch, naming the nearest global batches that divide. world_size >= 1.
std::int64_t grad_accum_steps(const TrainConfig& config, int world_size);
// Sequences of a step: train.global_batch, or one micro-batch a rank where it is auto.
std::int64_t global_batch_sequences(const TrainConfig& config, int world_size);
// "global batch = 1 x 16 x 32 = 512 sequences" (micro-batch x accumulation x ranks).
std::string batch_line(const TrainConfig& config, int world_size);

// Every key with its value, as JSON that read_config_text() reads back to the same configuration.
std::string dump_config(const TrainConfig& config);
// One key's value as a file would write it, without quotes: config_value(c, "train.steps").
std::string config_value(const TrainConfig& config, const std::string& name);

}  // namespace ingot
