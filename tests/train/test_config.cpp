// Goal: every key is read, checked, shown and written from one table, and every wrong input is
// refused with place, key, value and what is allowed. Method: texts in, messages out; loops over
// the table.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/train/config_table.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;

namespace {

TrainConfig read(const std::string& text) {
    TrainConfig config;
    read_config_text(text, "run.json", config);
    return config;
}

doctest::String refused(const char* code, const std::string& text) {
    return error_of(code, [&] { read(text); });
}

doctest::String override_refused(const char* code, const std::string& assignment) {
    TrainConfig config;
    return error_of(code, [&] { apply_override(config, assignment); });
}

// A configuration that check_config() accepts.
TrainConfig complete() {
    TrainConfig config;
    config.model.preset = "gpt2-tiny";
    config.data.train = "shards/*.bin";
    config.train.steps = 100;
    return config;
}

doctest::String check_refused(const TrainConfig& config) {
    TrainConfig copy = config;
    return error_of("config.combination", [&] { check_config(copy, ConfigUse::train); });
}

}  // namespace

TEST_CASE("config: values of a file replace defaults, and what is not given keeps them") {
    const TrainConfig c = read(R"({
        "model": {"preset": "gpt2-124m", "recompute": "block", "vocab_size": 50304,
                  "attention": "cudnn"},
        "data": {"train": "a*.bin", "shuffle": false},
        "train": {"device": "cpu", "steps": 7, "seq_len": "auto", "nonfinite": "skip",
                  "deterministic": false},
        "optimizer": {"lr": 3e-4, "weight_decay": 0},
        "schedule": {"kind": "wsd"},
        "log": {"dir": "runs \"é\"\n"}})");
    CHECK(c.model.preset == "gpt2-124m");
    CHECK(c.model.recompute == TrainConfig::Model::Recompute::block);
    CHECK(c.model.vocab_size == 50304);
    CHECK(c.model.attention == TrainConfig::Model::Attention::cudnn);
    CHECK(TrainConfig().model.attention == TrainConfig::Model::Attention::automatic);
    CHECK_FALSE(c.train.deterministic);
    CHECK(TrainConfig().train.deterministic);
    CHECK(c.data.train == "a*.bin");
    CHECK_FALSE(c.data.shuffle);
    CHECK(c.train.device == TrainConfig::Train::Device::cpu);
    CHECK(c.train.steps == 7);
    CHECK(c.train.seq_len == 0);
    CHECK(c.train.nonfinite == TrainConfig::Train::Nonfinite::skip);
    CHECK(c.optimizer.lr == 3e-4);
    CHECK(c.optimizer.weight_decay == 0.0);
    CHECK(c.schedule.kind == TrainConfig::Schedule::Kind::wsd);
    CHECK(c.log.dir == "runs \"é\"\n");
    CHECK(c.train.micro_batch == TrainConfig().train.micro_batch);
    CHECK(dump_config(read("{}")) == dump_config(TrainConfig()));
}

TEST_CASE("config: the dump reads back to itself, for defaults and for every key changed") {
    TrainConfig config;
    for (const ConfigKey& key : config_table()) {
        const auto last = static_cast<std::int64_t>(key.maximum);
        std::string value = "some/text";
        if (key.kind == ConfigKey::Kind::boolean) value = *key.boolean(config) ? "false" : "true";
        if (key.kind == ConfigKey::Kind::integer) value = std::to_string(last);
        if (key.kind == ConfigKey::Kind::real) value = "0.123456789012345678";
        if (key.kind == ConfigKey::Kind::word) value = key.words.back();
        const std::string before = config_value(config, key.name);
        apply_override(config, str(key.name, "=", value));
        CHECK_MESSAGE(config_value(config, key.name) != before, key.name);
    }
    const std::string dump = dump_config(config);
    CHECK(dump != dump_config(TrainConfig()));
    CHECK(dump_config(read(dump)) == dump);
    CHECK(dump_config(read(dump_config(TrainConfig()))) == dump_config(TrainConfig()));
    CHECK(read(dump).optimizer.lr == 0.123456789012345678);
}

TEST_CASE("config: defaults are inside their own ranges, names and helps are complete") {
    TrainConfig config;
    for (const ConfigKeyInfo& key : config_keys()) {
        INFO(key.name);
        CHECK_NOTHROW(apply_override(config, str(key.name, "=", key.initial)));
        CHECK(std::count(key.name.begin(), key.name.end(), '.') == 1);
        CHECK(key.help.size() > 5);
        CHECK(key.help.size() < 100);
        CHECK(find_later_key(key.name) == nullptr);
    }
    CHECK(dump_config(config) == dump_config(TrainConfig()));
}

TEST_CASE("config: every number key refuses both sides of its range and takes both ends") {
    for (const ConfigKey& key : config_table()) {
        INFO(std::string(key.name));
        TrainConfig config;
        if (key.kind == ConfigKey::Kind::integer) {
            const auto low = static_cast<std::int64_t>(key.minimum);
            const auto high = static_cast<std::int64_t>(key.maximum);
            CHECK_NOTHROW(apply_override(config, str(key.name, "=", low)));
            CHECK_NOTHROW(apply_override(config, str(key.name, "=", high)));
            for (const std::int64_t outside : {low - 1, high + 1}) {
                const doctest::String message =
                    override_refused("config.range", str(key.name, "=", outside));
                CHECK(message == Contains(str(key.name, " = ", outside, ", allowed is ").c_str()));
                CHECK(message == Contains(str(low, "..", high).c_str()));
            }
        }
        if (key.kind == ConfigKey::Kind::real) {
            for (const double end : {key.minimum, key.maximum}) {
                const bool open = end == key.minimum ? key.minimum_open : key.maximum_open;
                const doctest::String message =
                    override_refused("config.range", str(key.name, "=", end));
                CHECK((message.size() == 0) != open);
            }
            CHECK(override_refused("config.range", str(key.name, "=-0.5")) ==
                  Contains(str(key.name, " = -0.5, allowed is a number, 0 <").c_str()));
            CHECK(override_refused("config.range", str(key.name, "=1e10")) != "");
        }
    }
}

TEST_CASE("config: words and booleans are exact") {
    CHECK(refused("config.word", "{\"train\":\n{\"device\": \"gpu\"}}") ==
          Contains("run.json:2: train.device = \"gpu\", allowed is auto, cpu or cuda"));
    CHECK(refused("config.word", R"({"schedule": {"kind": "Cosine"}})") ==
          Contains("allowed is constant, linear, cosine or wsd"));
    CHECK(override_refused("config.type", "data.shuffle=1") ==
          Contains("command line: data.shuffle = 1, allowed is true or false"));
    CHECK(refused("config.type", R"({"data": {"shuffle": 0}})") ==
          Contains("data.shuffle = 0, allowed is true or false; a JSON number was given"));
    CHECK(refused("config.range", R"({"data": {"train": "a\u0000b"}})") ==
          Contains("a character of value 0"));
}

TEST_CASE("config: numbers as strings, fractions and other types are refused") {
    CHECK(refused("config.type", R"({"train": {"steps": "100"}})") ==
          Contains("train.steps = \"100\", allowed is an integer in 0..1000000000000; a string was "
                   "given where it takes a number; write it without quotes"));
    CHECK(refused("config.type", R"({"optimizer": {"lr": "6e-4"}})") == Contains("without quotes"));
    CHECK(refused("config.type", R"({"data": {"shuffle": "true"}})") ==
          Contains("takes true or false; write it without quotes"));
    CHECK(refused("config.type", R"({"train": {"steps": 1.5}})") == Contains("train.steps = 1.5"));
    CHECK(refused("config.type", R"({"train": {"steps": null}})") == Contains("JSON null"));
    CHECK(refused("config.type", R"({"train": {"steps": true}})") == Contains("JSON boolean"));
    CHECK(refused("config.type", R"({"train": {"steps": [1]}})") == Contains("JSON array"));
    CHECK(refused("config.type", R"({"log": {"dir": 5}})") == Contains("log.dir = 5"));
    CHECK(refused("config.type", R"({"train": 5})") ==
          Contains("train = 5 is a JSON number, needed is an object of keys"));
    CHECK(refused("config.json", "[1]") == Contains("holds a JSON array"));
    for (const char* value : {"12x", "", "0x10", "1e3", "--", "1.0", " 1"}) {
        CHECK(override_refused("config.type", str("train.steps=", value)) != "");
    }
}

TEST_CASE("config: NaN, infinities and overflowing numbers are refused") {
    CHECK(refused("config.json", "{\"optimizer\":\n\n{\"lr\": NaN}}") ==
          Contains("run.json:3: not valid JSON"));
    CHECK(refused("config.json", R"({"optimizer": {"lr": NaN}})") ==
          Contains("NaN is no JSON number"));
    CHECK(refused("config.json", R"({"optimizer": {"lr": -Infinity}})") != "");
    CHECK(refused("config.json", R"({"optimizer": {"lr": 1e999}})") == Contains("1e999"));
    CHECK(override_refused("config.range", "optimizer.lr=nan") == Contains("optimizer.lr = nan"));
    CHECK(override_refused("config.range", "optimizer.lr=inf") != "");
    CHECK(override_refused("config.range", "optimizer.lr=1e999") != "");
    CHECK(override_refused("config.range", "train.seed=99999999999999999999") != "");
    CHECK(refused("config.range", R"({"train": {"seed": 18446744073709551615}})") ==
          Contains("train.seed = 18446744073709551615"));
}

TEST_CASE("config: broken JSON names line and reason") {
    CHECK(refused("config.json", "{\n\"train\": {\"steps\": 1,}\n}") ==
          Contains("run.json:2: not valid JSON"));
    CHECK(refused("config.json", "{\"train\": {\"steps\": 1,}}") == Contains("comma too many"));
    CHECK(refused("config.json", "{'train': {}}") == Contains("double quotes"));
    CHECK(refused("config.json", "{} // done") == Contains("no comments"));
    CHECK(refused("config.json", "{\"data\": {\"shuffle\": True}}") == Contains("small letters"));
    CHECK(refused("config.json", "") != "");
    CHECK(refused("config.json", "{\"log\": {\"dir\": \"\xff\"}}") != "");
    CHECK(refused("config.json", std::string(100000, '[')) != "");
}

TEST_CASE("config: duplicate keys are refused, also when spelled differently, with both lines") {
    CHECK(refused("config.duplicate_key", "{\"train\": {\n\"steps\": 1,\n\"steps\": 1}}") ==
          Contains("run.json:3: key \"steps\" was already given in line 2"));
    CHECK(refused("config.duplicate_key", "{\"train\": {},\n\"train\": {}}") ==
          Contains("run.json:2: key \"train\""));
    CHECK(refused("config.duplicate_key", R"({"train": {"steps": 1, "st\u0065ps": 2}})") != "");
    // The same last part in two sections is no duplicate; braces and quotes in strings are text.
    CHECK(read("{\"eval\": {\"every\": 5}, \"sample\": {\"every\": 6}, \"log\": {\"dir\": "
               "\"{\\\"a\\\":[,\"},"
               "\"data\": {\"val\": \"v\"}}")
              .sample.every == 6);
}

TEST_CASE("config: unknown keys name the nearest key") {
    CHECK(refused("config.unknown_key", "{\"train\": {\n\"microbatch\": 4}}") ==
          Contains("run.json:2: unknown key train.microbatch = 4; the nearest key is "
                   "train.micro_batch (sequences"));
    CHECK(refused("config.unknown_key", R"({"model": {"seq_len": 4}})") ==
          Contains("train.seq_len"));
    CHECK(refused("config.unknown_key", R"({"optimiser": {"lr": 1}})") == Contains("unknown key "));
    CHECK(override_refused("config.unknown_key", "steps=4") == Contains("is train.steps"));
    CHECK(override_refused("config.unknown_key", "optimizer.learningrate=4") ==
          Contains("command line: unknown key optimizer.learningrate = 4"));
    CHECK(refused("config.unknown_key", R"({"train.steps": 4})") ==
          Contains("write {\"train\": {\"steps\": 4}}"));
    CHECK(nearest_config_key("optimizer.wieght_decay") == "optimizer.weight_decay");
    CHECK(nearest_config_key("checkpoint.evry") == "checkpoint.every");
    for (const ConfigKey& key : config_table())
        CHECK(nearest_config_key(key.name) == key.name);
}

TEST_CASE("config: names of other trainers lead to ours") {
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"per_device_train_batch_size", "Hugging Face Trainer, here it is train.micro_batch"},
        {"gradient_accumulation_steps", "train.global_batch"},
        {"bf16", "precision.params"},
        {"fp16", "there is no fp16"},
        {"gradient_checkpointing", "model.recompute"},
        {"dataloader_num_workers", "data.workers"},
        {"save_steps", "checkpoint.every, which is not in this release"},
        {"learning_rate", "optimizer.lr"},
        {"num_train_epochs", "train.epochs"},
        {"max_steps", "train.steps"},
        {"warmup_ratio", "schedule.warmup_steps"},
        {"lr_scheduler_type", "schedule.kind"},
        {"logging_dir", "log.dir"},
        {"output_dir", "checkpoint.dir"},
        {"resume_from_checkpoint", "checkpoint.resume"},
        {"nproc_per_node", "torchrun; start N ranks with mpirun"},
        {"max_iters", "nanoGPT, here it is train.steps"},
        {"train_micro_batch_size_per_gpu", "DeepSpeed, here it is train.micro_batch"}};
    for (const auto& [name, expected] : cases) {
        INFO(std::string(name));
        CHECK(refused("config.unknown_key", str("{\"", name, "\": 1}")) == Contains(expected));
        CHECK(refused("config.unknown_key", str("{\"train\": {\"", name, "\": 1}}")) ==
              Contains(expected));
        CHECK(override_refused("config.unknown_key", str("--", name, "=1")) == Contains(expected));
    }
    CHECK(override_refused("config.unknown_key", "nproc-per-node=8") == Contains("torchrun"));
}

TEST_CASE("config: attention takes each of its four words, determinism true and false alone") {
    TrainConfig config;
    for (const char* word : {"own", "general", "cudnn", "auto"}) {
        apply_override(config, str("model.attention=", word));
        CHECK(config_value(config, "model.attention") == word);
    }
    CHECK(override_refused("config.word", "model.attention=flash") ==
          Contains("model.attention = flash"));
    CHECK(override_refused("config.word", "model.attention=flash") ==
          Contains("auto, own, general or cudnn"));
    apply_override(config, "train.deterministic=false");
    CHECK_FALSE(config.train.deterministic);
    CHECK(override_refused("config.type", "train.deterministic=1") ==
          Contains("train.deterministic"));
}

TEST_CASE(
    "config: keys of a later release are refused by name, and their neutral values accepted") {
    CHECK(refused("config.not_in_release", "{\"parallel\":\n{\"zero_stage\": 2}}") ==
          Contains("run.json:2: parallel.zero_stage = 2 is not in this release, allowed 0; "));
    CHECK(override_refused("config.not_in_release", "parallel.comm=nccl") ==
          Contains("allowed auto or single"));
    CHECK(override_refused("config.not_in_release", "checkpoint.keep=2") ==
          Contains("checkpoint.keep"));
    CHECK(override_refused("config.not_in_release", "precision.moments=bf16") == Contains("fp32"));
    CHECK(override_refused("config.word", "checkpoint.resume=runs/a/checkpoint-10") ==
          Contains("a path is not in this release"));
    TrainConfig config;
    for (const LaterKey& key : later_keys()) {
        for (const char* word : key.accepted) {
            CHECK_NOTHROW(apply_override(config, str(key.name, "=", word)));
        }
    }
    CHECK_NOTHROW(read(R"({"parallel": {"zero_stage": 0, "comm": "single", "share_gpu": false}})"));
    CHECK(dump_config(config) == dump_config(TrainConfig()));
}

TEST_CASE("config: a missing file says how to make one, an unreadable one is named") {
    const TempFolder folder;
    const doctest::String message =
        error_of("config.missing_file", [&] { read_config_file(folder / "run.json"); });
    CHECK(message == Contains((folder / "run.json").c_str()));
    CHECK(message == Contains("`make run` writes run.json"));
    CHECK(error_of("file.read", [&] { read_config_file(folder.path()); }) == Contains("a folder"));
    write_all(folder / "ok.json", R"({"train": {"steps": 5}})");
    CHECK(read_config_file(folder / "ok.json").train.steps == 5);
}

TEST_CASE("config: keys that contradict each other are refused with both values") {
    CHECK(check_refused(complete()) == "");
    TrainConfig c = complete();
    c.train.epochs = 2;
    CHECK(check_refused(c) == Contains("train.steps = 100 and train.epochs = 2 both"));
    c.train.steps = 0;
    CHECK(check_refused(c) == "");
    c.train.epochs = 0;
    CHECK(check_refused(c) == Contains("train.steps = 0 and train.epochs = 0"));
    c = complete();
    c.schedule.warmup_steps = 101;
    CHECK(check_refused(c) ==
          Contains("schedule.warmup_steps = 101, allowed is at most train.steps = 100"));
    c = complete();
    c.model.preset = "";
    CHECK(check_refused(c) == Contains("neither model.preset nor model.hf"));
    c.model.hf = "llama";
    CHECK(check_refused(c) == Contains("model.hf = llama, but model.init = auto"));
    c.model.init = TrainConfig::Model::Init::hf;
    CHECK(check_refused(c) == "");
    c.model.preset = "gpt2-tiny";
    CHECK(check_refused(c) == Contains("model.preset = gpt2-tiny and model.hf = llama"));
    c.model.hf = "";
    CHECK(check_refused(c) == Contains("model.init = hf, but model.hf is empty"));
    c = complete();
    c.data.train = "";
    CHECK(check_refused(c) == Contains("data.train is empty"));
    c = complete();
    c.eval.every = 10;
    CHECK(check_refused(c) == Contains("eval.every = 10, but data.val is empty"));
    c = complete();
    c.log.dir = "";
    CHECK(check_refused(c) == Contains("log.dir is empty"));
}

TEST_CASE("config: a checked configuration has no open choices, and a plan needs no data") {
    TrainConfig c = complete();
    c.log.dir = "runs/x";
    check_config(c, ConfigUse::train);
    CHECK(c.model.init == TrainConfig::Model::Init::scratch);
    CHECK(c.checkpoint.dir == "runs/x/checkpoints");
    c = TrainConfig();
    c.model.preset = "gpt2-124m";
    CHECK_NOTHROW(check_config(c, ConfigUse::plan));
}

TEST_CASE("config: the global batch divides, or the nearest batches that do are named") {
    TrainConfig c = complete();
    c.train.micro_batch = 1;
    c.train.global_batch = 512;
    CHECK(grad_accum_steps(c, 32) == 16);
    CHECK(batch_line(c, 32) == "global batch = 1 x 16 x 32 = 512 sequences");
    c.train.micro_batch = 6;
    CHECK(error_of("config.batch", [&] { check_config(c, ConfigUse::train); }) ==
          Contains("train.global_batch = 512, allowed are multiples of train.micro_batch x ranks = "
                   "6 x 1 = 6; the nearest are 510 and 516"));
    c.train.global_batch = 5;
    CHECK(error_of("config.batch", [&] { grad_accum_steps(c, 2); }) ==
          Contains("6 x 2 = 12; the nearest are 12"));
    c.train.global_batch = 0;
    CHECK(global_batch_sequences(c, 4) == 24);
    CHECK(grad_accum_steps(c, 4) == 1);
    CHECK(error_of("config.batch", [&] { grad_accum_steps(c, 0); }) == Contains("world size = 0"));
}
