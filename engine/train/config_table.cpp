#include "engine/train/config_table.h"

#include <sstream>
#include <type_traits>
#include <utility>

#include "engine/core/check.h"

namespace ingot {
namespace {

using C = TrainConfig;
using Kind = ConfigKey::Kind;

template <auto Section, auto Field>
auto* field(TrainConfig& config) {
    return &((config.*Section).*Field);
}

template <auto Section, auto Field>
ConfigKey boolean(const char* name, const char* help) {
    ConfigKey key{name, Kind::boolean, help};
    key.boolean = [](TrainConfig& c) { return field<Section, Field>(c); };
    return key;
}

template <auto Section, auto Field>
ConfigKey integer(const char* name,
                  double minimum,
                  double maximum,
                  const char* help,
                  const char* zero_word = nullptr) {
    ConfigKey key{name, Kind::integer, help};
    key.integer = [](TrainConfig& c) { return field<Section, Field>(c); };
    key.minimum = minimum;
    key.maximum = maximum;
    key.zero_word = zero_word;
    return key;
}

enum class Ends { closed, open_minimum, open_maximum };

template <auto Section, auto Field>
ConfigKey real(const char* name, double minimum, double maximum, Ends ends, const char* help) {
    ConfigKey key{name, Kind::real, help};
    key.real = [](TrainConfig& c) { return field<Section, Field>(c); };
    key.minimum = minimum;
    key.maximum = maximum;
    key.minimum_open = ends == Ends::open_minimum;
    key.maximum_open = ends == Ends::open_maximum;
    return key;
}

template <auto Section, auto Field>
ConfigKey text(const char* name, const char* allowed, const char* help) {
    ConfigKey key{name, Kind::text, help};
    key.text = [](TrainConfig& c) { return field<Section, Field>(c); };
    key.text_allowed = allowed;
    return key;
}

// The words are in the order of the enumerators.
template <auto Section, auto Field>
ConfigKey word(const char* name, std::vector<const char*> words, const char* help) {
    ConfigKey key{name, Kind::word, help};
    key.get_word = [](const TrainConfig& c) { return static_cast<int>((c.*Section).*Field); };
    key.set_word = [](TrainConfig& c, int index) {
        auto& value = (c.*Section).*Field;
        value = static_cast<std::remove_reference_t<decltype(value)>>(index);
    };
    key.words = std::move(words);
    return key;
}

void add_model_and_data(std::vector<ConfigKey>& t) {
    using M = C::Model;
    using D = C::Data;
    t.push_back(
        text<&C::model, &M::preset>("model.preset", "a preset's name, or \"\"",
                                    "gpt2-tiny, gpt2-51m, gpt2-124m, gpt2-350m, gpt2-774m or "
                                    "gpt2-1558m"));
    t.push_back(text<&C::model, &M::hf>(
        "model.hf", "a folder, or \"\"",
        "Hugging Face folder with config.json that gives the architecture, instead of a preset"));
    t.push_back(word<&C::model, &M::init>("model.init", {"auto", "hf", "scratch"},
                                          "hf: start from the weights in model.hf; scratch: random "
                                          "ones; auto: scratch with a preset"));
    t.push_back(integer<&C::model, &M::vocab_size>(
        "model.vocab_size", 1, 16777216,
        "tokens; auto: the vocabulary of the shards (with a preset) or of model.hf", "auto"));
    t.push_back(word<&C::model, &M::recompute>(
        "model.recompute", {"none", "light", "block"},
        "compute again in backward instead of keeping: light: norms and activations, block: all"));
    t.push_back(word<&C::model, &M::attention>("model.attention",
                                               {"auto", "own", "general", "cudnn"},
                                               "auto: own where it applies (CUDA, bf16, head size "
                                               "64 or 128), else general; cudnn: cuDNN's"));
    t.push_back(text<&C::data, &D::train>("data.train", "a glob of files",
                                          "token shards to train on, e.g. shards/train*.bin"));
    t.push_back(text<&C::data, &D::val>("data.val", "a glob of files, or \"\"",
                                        "token shards for validation; \"\": no validation"));
    t.push_back(text<&C::data, &D::test>("data.test", "a glob of files, or \"\"",
                                         "token shards for the test at the end; \"\": none"));
    t.push_back(boolean<&C::data, &D::shuffle>(
        "data.shuffle", "a new order of the samples every epoch, from train.seed alone"));
    t.push_back(integer<&C::data, &D::workers>("data.workers", 1, 256,
                                               "threads of a rank that prepare the next batches"));
}

void add_train(std::vector<ConfigKey>& t) {
    using T = C::Train;
    t.push_back(
        word<&C::train, &T::device>("train.device", {"auto", "cpu", "cuda"},
                                    "auto: the CPU only where the machine has no NVIDIA device"));
    t.push_back(integer<&C::train, &T::steps>("train.steps", 0, 1e12,
                                              "optimizer steps; 0: derived from train.epochs"));
    t.push_back(
        real<&C::train, &T::epochs>("train.epochs", 0, 1e6, Ends::closed,
                                    "passes over the training data; 0: derived from train.steps"));
    t.push_back(integer<&C::train, &T::seq_len>(
        "train.seq_len", 1, 16777216, "tokens of a sequence; auto: the model's context length",
        "auto"));
    t.push_back(integer<&C::train, &T::micro_batch>("train.micro_batch", 1, 1048576,
                                                    "sequences that a rank computes at once"));
    t.push_back(integer<&C::train, &T::global_batch>(
        "train.global_batch", 1, 1073741824,
        "sequences of a step = micro_batch x accumulation x ranks; auto: no accumulation", "auto"));
    t.push_back(integer<&C::train, &T::seed>("train.seed", 0, 9007199254740991,
                                             "of initialization, sample order and sampling"));
    t.push_back(boolean<&C::train, &T::deterministic>(
        "train.deterministic",
        "the same bits on repetition; false: cuDNN's attention may add in any order, which needs "
        "less memory"));
    t.push_back(boolean<&C::train, &T::overfit_one_batch>(
        "train.overfit_one_batch", "train on the first batch only: its loss must go to about 0"));
    t.push_back(word<&C::train, &T::nonfinite>(
        "train.nonfinite", {"stop", "skip"},
        "what to do with a step whose loss or gradient is not finite, before the update"));
    t.push_back(integer<&C::train, &T::threads>("train.threads", 1, 4096,
                                                "CPU threads of a rank; auto: all cores", "auto"));
    t.push_back(text<&C::train, &T::matmul_plans>(
        "train.matmul_plans", "a file, or \"\"",
        "matmul_plans.txt of an earlier run, for its bits: its algorithms are not timed again"));
}

void add_optimizer_and_schedule(std::vector<ConfigKey>& t) {
    using O = C::Optimizer;
    using S = C::Schedule;
    t.push_back(real<&C::optimizer, &O::lr>("optimizer.lr", 0, 10, Ends::open_minimum,
                                            "peak learning rate of AdamW"));
    t.push_back(real<&C::optimizer, &O::beta1>("optimizer.beta1", 0, 1, Ends::open_maximum,
                                               "decay of the first moment"));
    t.push_back(real<&C::optimizer, &O::beta2>("optimizer.beta2", 0, 1, Ends::open_maximum,
                                               "decay of the second moment"));
    t.push_back(real<&C::optimizer, &O::eps>("optimizer.eps", 0, 1, Ends::open_minimum,
                                             "added to the root of the second moment"));
    t.push_back(real<&C::optimizer, &O::weight_decay>(
        "optimizer.weight_decay", 0, 10, Ends::closed,
        "decoupled decay of parameters with 2 or more dimensions"));
    t.push_back(real<&C::optimizer, &O::grad_clip>(
        "optimizer.grad_clip", 0, 1e9, Ends::closed,
        "largest global gradient norm, larger ones are scaled to it; 0: off"));
    t.push_back(word<&C::schedule, &S::kind>(
        "schedule.kind", {"constant", "linear", "cosine", "wsd"},
        "learning rate after the warm-up; wsd: constant, then a linear decay"));
    t.push_back(integer<&C::schedule, &S::warmup_steps>(
        "schedule.warmup_steps", 0, 1e12, "steps in which the rate rises from lr / warmup_steps"));
    t.push_back(
        real<&C::schedule, &S::final_lr_ratio>("schedule.final_lr_ratio", 0, 1, Ends::closed,
                                               "rate of the last step as a part of optimizer.lr"));
    t.push_back(real<&C::schedule, &S::decay_fraction>(
        "schedule.decay_fraction", 0, 1, Ends::open_minimum, "wsd: part of the steps that decays"));
}

void add_precision_and_checkpoint(std::vector<ConfigKey>& t) {
    using P = C::Precision;
    using K = C::Checkpoint;
    t.push_back(word<&C::precision, &P::params>(
        "precision.params", {"auto", "bf16", "fp32"},
        "parameters and activations; auto: bf16 on CUDA, fp32 on the CPU"));
    t.push_back(word<&C::precision, &P::grad_accum>(
        "precision.grad_accum", {"auto", "bf16", "fp32"}, "accumulated gradients; auto: fp32"));
    t.push_back(
        text<&C::checkpoint, &K::dir>("checkpoint.dir", "a folder, or \"\"",
                                      "where checkpoints go; \"\": checkpoints in log.dir"));
    t.push_back(word<&C::checkpoint, &K::resume>(
        "checkpoint.resume", {"auto", "none"},
        "this release starts new runs only: with both, the folders must hold no run"));
    t.back().later =
        "a path is not in this release; to start from a checkpoint's weights, set model.hf to its "
        "folder and model.init=hf";
}

void add_reports(std::vector<ConfigKey>& t) {
    using E = C::Eval;
    using S = C::Sample;
    t.push_back(integer<&C::eval, &E::every>("eval.every", 0, 1e12,
                                             "steps between validations; 0: only at the end"));
    t.push_back(integer<&C::eval, &E::batches>(
        "eval.batches", 1, 1e9,
        "micro-batches (over all ranks) of a validation between steps; auto: all, as at the end",
        "auto"));
    t.push_back(integer<&C::sample, &S::every>("sample.every", 0, 1e12,
                                               "steps between text samples; 0: only at the end"));
    t.push_back(integer<&C::sample, &S::tokens>("sample.tokens", 0, 1e6,
                                                "tokens of a text sample; 0: none"));
    t.push_back(real<&C::sample, &S::temperature>("sample.temperature", 0, 100, Ends::closed,
                                                  "0: always the most likely token"));
    t.push_back(integer<&C::sample, &S::top_k>("sample.top_k", 0, 16777216,
                                               "draw from the k most likely tokens; 0: from all"));
    t.push_back(text<&C::log, &C::Logs::dir>(
        "log.dir", "a folder",
        "gets metrics.jsonl, config.json, TensorBoard events and one log per rank"));
    t.push_back(integer<&C::log, &C::Logs::profile_step>(
        "log.profile_step", 0, 1e12,
        "step whose ops are timed, for profile.json in log.dir; 0: none"));
    t.push_back(text<&C::plan, &C::Plan::gpu>(
        "plan.gpu", "a GPU's name, or \"\"",
        "device that --plan plans for, e.g. h200 or a100-80; \"\": this machine's"));
    t.push_back(integer<&C::plan, &C::Plan::world_size>("plan.world_size", 1, 65536,
                                                        "ranks that --plan plans for"));
}

std::vector<ConfigKey> make_table() {
    std::vector<ConfigKey> table;
    add_model_and_data(table);
    add_train(table);
    add_optimizer_and_schedule(table);
    add_precision_and_checkpoint(table);
    add_reports(table);
    return table;
}

std::string plain_number(double value) {
    std::ostringstream out;
    out.precision(10);
    out << value;
    return out.str();
}

}  // namespace

const std::vector<ConfigKey>& config_table() {
    static const std::vector<ConfigKey> table = make_table();
    return table;
}

const ConfigKey* find_config_key(const std::string& name) {
    for (const ConfigKey& key : config_table()) {
        if (name == key.name) return &key;
    }
    return nullptr;
}

std::string allowed_values(const ConfigKey& key) {
    switch (key.kind) {
        case Kind::boolean:
            return "true or false";
        case Kind::integer: {
            const std::string range = str("an integer in ", static_cast<std::int64_t>(key.minimum),
                                          "..", static_cast<std::int64_t>(key.maximum));
            return key.zero_word == nullptr ? range : str(key.zero_word, " or ", range);
        }
        case Kind::real:
            return str("a number, ", plain_number(key.minimum),
                       key.minimum_open ? " <" : " <=", " value",
                       key.maximum_open ? " < " : " <= ", plain_number(key.maximum));
        case Kind::word: {
            std::string list;
            for (std::size_t i = 0; i < key.words.size(); ++i) {
                if (i > 0) list += i + 1 == key.words.size() ? " or " : ", ";
                list += key.words[i];
            }
            return list;
        }
        case Kind::text:
            break;
    }
    return key.text_allowed;
}

}  // namespace ingot
