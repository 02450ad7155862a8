#include "engine/train/run_setup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <glob.h>

#include "data/sha256.h"
#include "engine/train/batch_feeder.h"
#include "engine/train/optimizer.h"
#include "kernels/attention_method.h"
#include "model/families/gpt2.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

Recompute recompute_of(TrainConfig::Model::Recompute recompute) {
    switch (recompute) {
        case TrainConfig::Model::Recompute::none:
            return Recompute::none;
        case TrainConfig::Model::Recompute::light:
            return Recompute::light;
        case TrainConfig::Model::Recompute::block:
            return Recompute::block;
    }
    return Recompute::none;
}

AttentionMethod attention_of(TrainConfig::Model::Attention attention) {
    switch (attention) {
        case TrainConfig::Model::Attention::automatic:
            return AttentionMethod::automatic;
        case TrainConfig::Model::Attention::own:
            return AttentionMethod::own;
        case TrainConfig::Model::Attention::general:
            return AttentionMethod::general;
        case TrainConfig::Model::Attention::cudnn:
            return AttentionMethod::cudnn;
    }
    return AttentionMethod::automatic;
}

// The architecture, before the data has a say.
void read_model(const TrainConfig& config, RunSetup& setup) {
    setup.has_pretrained_weights = config.model.init == TrainConfig::Model::Init::hf;
    setup.model =
        config.model.hf.empty() ? preset(config.model.preset) : read_gpt2_config(config.model.hf);
}

// model.vocab_size: a number, or what the shards (or the weights) have.
void set_vocabulary(const TrainConfig& config, RunSetup& setup, Log& log) {
    const std::int64_t shards = setup.train == nullptr ? 0 : setup.train->vocab_size();
    if (config.model.vocab_size > 0) {
        ENSURE(config.model.hf.empty() || config.model.vocab_size == setup.model.vocab_size,
               "setup.vocab", "model.vocab_size = ", config.model.vocab_size, ", but ",
               config.model.hf, "/config.json has vocab_size = ", setup.model.vocab_size,
               "; leave model.vocab_size out");
        setup.model.vocab_size = config.model.vocab_size;
    } else if (config.model.hf.empty() && shards > 0) {
        setup.model.vocab_size = shards;
        log.info(str("model.vocab_size = auto: ", shards, ", from the shards"));
    }
}

// train.seq_len: the model's context by default. A longer one grows the position table of a model
// that starts from scratch, and is refused for pretrained positions.
void set_sequence_length(const TrainConfig& config, RunSetup& setup, Log& log) {
    const std::int64_t context = setup.model.context_length;
    setup.T = config.train.seq_len > 0 ? config.train.seq_len : context;
    if (setup.T <= context) return;
    ENSURE(!setup.has_pretrained_weights, "setup.seq_len", "train.seq_len = ", setup.T,
           ", but the pretrained model of ", config.model.hf, " has ", context,
           " positions; use train.seq_len <= ", context, " or model.init=scratch");
    setup.model.context_length = setup.T;
    log.info(str("train.seq_len = ", setup.T, " is above the context of ", context,
                 ": the position table grows to ", setup.T, " rows"));
}

void set_precision(const TrainConfig& config, RunSetup& setup) {
    using Params = TrainConfig::Precision::Params;
    using GradAccum = TrainConfig::Precision::GradAccum;
    const bool bf16 =
        config.precision.params == Params::bf16 ||
        (config.precision.params == Params::automatic && setup.device == Device::cuda);
    setup.params = bf16 ? DType::bf16 : DType::f32;
    setup.grads = config.precision.grad_accum == GradAccum::bf16 ? DType::bf16 : DType::f32;
}

void set_batch(const TrainConfig& config, RunSetup& setup) {
    setup.B = config.train.micro_batch;
    setup.global_batch = global_batch_sequences(config, setup.world_size);
    setup.grad_accum_steps = grad_accum_steps(config, setup.world_size);
}

// model.attention: chosen here once, for a device that a plan need not have.
void set_attention(const TrainConfig& config, RunSetup& setup, Log& log) {
    const AttentionMethod wanted = attention_of(config.model.attention);
    const AttentionShape shape{setup.B,
                               setup.T,
                               setup.model.num_heads,
                               setup.model.num_kv_heads,
                               static_cast<int>(setup.model.head_size),
                               setup.params};
    const AttentionChoice choice = choose_attention(wanted, setup.device, shape);
    setup.attention = choice.method;
    setup.deterministic = config.train.deterministic;
    log.info(
        str("model.attention = ", name_of(wanted), ": ", name_of(choice.method), ", ", choice.why));
    if (!setup.deterministic && choice.method != AttentionMethod::cudnn) {
        log.info(
            "train.deterministic = false: changes nothing here, every operator of this run is "
            "deterministic");
    }
}

// What cuDNN does is said once its library is known to load.
void load_attention_library(const RunSetup& setup, Log& log) {
    const std::string library = require_attention_library(setup.attention);
    if (library.empty()) return;
    log.info(str("attention: ", library, ", ",
                 setup.deterministic ? "deterministic backward pass"
                                     : "backward pass that adds in any order",
                 "; text samples, whose length changes, use model.attention=auto"));
}

std::unique_ptr<TokenSet> open_set(const std::string& files,
                                   const char* role,
                                   std::int64_t vocab_size) {
    if (files.empty()) return nullptr;
    return std::make_unique<TokenSet>(
        TokenSetConfig{.files = files, .role = role, .vocab_size = vocab_size});
}

// Ids beyond the model's vocabulary are refused when a set is opened, so the vocabulary must be
// known first; with `auto` it comes from the training shards' own header.
void open_data(const TrainConfig& config, RunSetup& setup, Log& log) {
    ENSURE(!config.data.train.empty(), "setup.data",
           "data.train is empty; name the token shards, e.g. --data.train='shards/train_*.bin'");
    const bool vocabulary_is_known = config.model.vocab_size > 0 || !config.model.hf.empty();
    const std::int64_t given =
        config.model.vocab_size > 0 ? config.model.vocab_size : setup.model.vocab_size;
    setup.train = open_set(config.data.train, "train", vocabulary_is_known ? given : 0);
    set_vocabulary(config, setup, log);
    const std::int64_t V = setup.model.vocab_size;
    ENSURE(setup.train->max_id() < V, "data.token_id", setup.train->description(), ": token id ",
           setup.train->max_id(), " is beyond the model's vocab_size = ", V,
           "; set model.vocab_size or prepare the data with this model's tokenizer");
    setup.val = open_set(config.data.val, "val", V);
    setup.test = open_set(config.data.test, "test", V);
    for (const TokenSet* held_out : {setup.val.get(), setup.test.get()}) {
        if (held_out != nullptr) check_separate(*setup.train, *held_out);
    }
    setup.eos_id = setup.train->shards().front().header().eos_id;
}

// tokenizer.json of the model folder, or beside the shards; the shards say which one made them.
void find_tokenizer(const TrainConfig& config, RunSetup& setup, Log& log) {
    const fs::path parent = fs::path(setup.train->shards().front().path()).parent_path();
    const fs::path beside_shards = parent.empty() ? "." : parent;
    for (const fs::path& folder : {fs::path(config.model.hf), beside_shards}) {
        if (folder.empty() || !fs::exists(folder / "tokenizer.json")) continue;
        const std::string path = (folder / "tokenizer.json").string();
        check_tokenizer(*setup.train, sha256_of_file(path), path);
        setup.tokenizer_folder = folder.string();
        return;
    }
    log.info(str("tokenizer: no tokenizer.json in ", beside_shards.string(),
                 "; no text is sampled and the checkpoint has none"));
}

void set_steps(const TrainConfig& config, RunSetup& setup, Log& log) {
    const std::int64_t windows = setup.train->num_windows(setup.T);
    ENSURE(windows >= setup.global_batch, "data.too_short", setup.train->description(), " gives ",
           windows, " sequences of ", setup.T, " tokens, one global batch needs ",
           setup.global_batch, " (", setup.global_batch * setup.T + 1,
           " tokens); use more data, a smaller train.global_batch or a shorter train.seq_len");
    setup.steps_per_epoch = windows / setup.global_batch;
    if (config.train.steps > 0) {
        setup.total_steps = config.train.steps;
        return;
    }
    setup.total_steps = std::max<std::int64_t>(
        1, std::llround(config.train.epochs * static_cast<double>(setup.steps_per_epoch)));
    log.info(str("train.steps = auto: ", setup.total_steps, ", ", config.train.epochs,
                 " epochs of ", setup.steps_per_epoch, " steps"));
}

// An earlier run's choice of matmul algorithms, which only CUDA has.
void check_matmul_plans(const TrainConfig& config, const RunSetup& setup, Log& log) {
    const std::string& path = config.train.matmul_plans;
    if (path.empty()) return;
    ENSURE(fs::is_regular_file(path), "setup.matmul_plans", "train.matmul_plans = ", path,
           " is no file; name the matmul_plans.txt in log.dir of an earlier run, or leave it out");
    if (setup.device == Device::cpu) {
        log.info("train.matmul_plans is not read: on the CPU there is nothing to choose");
    }
}

void check_profile_step(const TrainConfig& config, const RunSetup& setup) {
    ENSURE(config.log.profile_step <= setup.total_steps, "setup.profile_step",
           "log.profile_step = ", config.log.profile_step, ", but the run has ", setup.total_steps,
           " steps; name one of them, or 0 for none");
}

void describe_this_machine(const TrainConfig& config, RunSetup& setup) {
    setup.device = resolve_device(config.train.device, pci_bus_has_nvidia_device());
    setup.target = setup.device == Device::cuda ? describe_this_gpu(0) : describe_this_cpu();
}

// A plan takes the vocabulary that a run would take: the shards' where there are any.
void assume_vocabulary(const TrainConfig& config, RunSetup& setup, Log& log) {
    glob_t matches{};
    const bool found = ::glob(config.data.train.c_str(), 0, nullptr, &matches) == 0;
    const std::int64_t shards = found ? TokenShard(matches.gl_pathv[0]).header().vocab_size : 0;
    ::globfree(&matches);
    if (shards > 0) setup.model.vocab_size = shards;
    log.info(
        str("model.vocab_size = auto: ", setup.model.vocab_size,
            shards > 0 ? ", from the shards" : ", the preset's own: there are no shards to ask"));
}

}  // namespace

Device resolve_device(TrainConfig::Train::Device wanted, bool machine_has_nvidia_device) {
    using Wanted = TrainConfig::Train::Device;
    if (wanted == Wanted::cpu) return Device::cpu;
    if (wanted == Wanted::automatic && !machine_has_nvidia_device) return Device::cpu;
    // Said here and not when the device is opened: by then the run has its folder.
    ENSURE(kHasCuda, "setup.device",
           wanted == Wanted::automatic ? "train.device = auto: this machine has an NVIDIA device"
                                       : "train.device = cuda",
           ", but this build holds no CUDA code; run `make build` with nvcc in PATH, CUDA_HOME or "
           "/usr/local/cuda, or say --train.device=cpu");
    return Device::cuda;
}

LoaderConfig RunSetup::loader_config(const TrainConfig& config) const {
    LoaderConfig loader;
    loader.seq_len = T;
    loader.micro_batch = B;
    loader.global_batch = global_batch;
    loader.world_size = world_size;
    loader.seed = static_cast<std::uint64_t>(config.train.seed);
    loader.shuffle = config.data.shuffle;
    loader.workers = static_cast<int>(config.data.workers);
    return hold_batches(loader, result_lag(device));
}

MemoryRequest RunSetup::memory_request(const TrainConfig& config) const {
    MemoryRequest request;
    request.model = model;
    request.activations.B = B;
    request.activations.T = T;
    request.activations.recompute = recompute_of(config.model.recompute);
    request.activations.dtype = params;
    request.activations.device = device;
    request.activations.attention = attention;
    request.activations.deterministic = deterministic;
    request.params.params = params;
    request.params.grads = grads;
    request.grad_accum_steps = grad_accum_steps;
    request.loader = loader_config(config);
    request.world_size = world_size;
    request.target = target;
    return request;
}

RunSetup set_up_training(const TrainConfig& config, Log& log) {
    RunSetup setup;
    describe_this_machine(config, setup);
    if (config.train.device == TrainConfig::Train::Device::automatic) {
        log.info(str("train.device = auto: ", name_of(setup.device)));
    }
    read_model(config, setup);
    open_data(config, setup, log);
    set_sequence_length(config, setup, log);
    validate(setup.model);
    find_tokenizer(config, setup, log);
    set_precision(config, setup);
    set_batch(config, setup);
    set_attention(config, setup, log);
    load_attention_library(setup, log);
    set_steps(config, setup, log);
    check_profile_step(config, setup);
    check_matmul_plans(config, setup, log);
    return setup;
}

RunSetup set_up_plan(const TrainConfig& config, Log& log) {
    RunSetup setup;
    if (config.plan.gpu.empty()) {
        describe_this_machine(config, setup);
    } else {
        setup.target = describe_device(config.plan.gpu);
        setup.device = setup.target.device;
    }
    setup.world_size = static_cast<int>(config.plan.world_size);
    read_model(config, setup);
    if (config.model.vocab_size > 0) {
        setup.model.vocab_size = config.model.vocab_size;
    } else if (config.model.hf.empty()) {
        assume_vocabulary(config, setup, log);
    }
    set_sequence_length(config, setup, log);
    validate(setup.model);
    set_precision(config, setup);
    set_batch(config, setup);
    set_attention(config, setup, log);
    return setup;
}

}  // namespace ingot
