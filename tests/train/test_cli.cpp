// Goal: the command-line contract. Method: argument lists in, decisions and messages out; the
// committed documentation and configurations are compared with the table.
#include <vector>

#include <doctest/doctest.h>

#include "engine/train/cli.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;

namespace {

CommandLine parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "./train_gpt");
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

doctest::String refused(const char* code, const std::vector<const char*>& arguments) {
    return error_of(code, [&] { parse(arguments); });
}

}  // namespace

TEST_CASE("cli: without a file it is run.json and training") {
    const CommandLine line = parse({});
    CHECK(line.config_path == "run.json");
    CHECK(line.action == CommandLine::Action::train);
    CHECK(line.overrides.empty());
}

TEST_CASE(
    "cli: file, flags and settings come in any order, empty values and equal signs are values") {
    const CommandLine line = parse({"--train.steps=5", "--plan", "my.json",
                                    "--data.val=", "--data.test=a=b c", "--plan.gpu=h200"});
    CHECK(line.config_path == "my.json");
    CHECK(line.action == CommandLine::Action::plan);
    CHECK(line.overrides == std::vector<std::string>{
                                "train.steps=5", "data.val=", "data.test=a=b c", "plan.gpu=h200"});
    CHECK(parse({"--help"}).action == CommandLine::Action::help);
    CHECK(parse({"-h", "--nonsense"}).action == CommandLine::Action::help);
    CHECK(parse({"--version"}).action == CommandLine::Action::version);
    CHECK(parse({"--help-markdown"}).action == CommandLine::Action::help_markdown);
}

TEST_CASE("cli: what is no setting is refused with what to write") {
    CHECK(refused("config.command_line", {"run.json", "--train.steps", "5"}) != "");
    CHECK(refused("config.command_line", {"--train.steps"}) ==
          Contains("--train.steps has no value; write --train.steps=VALUE"));
    CHECK(refused("config.command_line", {"a.json", "b.json"}) ==
          Contains("b.json is one argument too many"));
    CHECK(refused("config.unknown_key", {"--resume"}) == Contains("checkpoint.resume"));
    CHECK(refused("config.unknown_key", {"--batch_size", "32"}) ==
          Contains("nanoGPT, here it is train.micro_batch"));
    CHECK(refused("config.unknown_key", {"-b", "32"}) ==
          Contains("llm.c, here it is train.micro_batch"));
    CHECK(refused("config.unknown_key", {"--nproc_per_node", "8"}) == Contains("mpirun -np N"));
}

TEST_CASE(
    "cli: overrides apply on top of the file, the last one holds, and the result is checked") {
    const TempFolder folder;
    const std::string path = folder / "run.json";
    write_all(path, R"({"model": {"preset": "gpt2-tiny"}, "data": {"train": "x"},
                        "train": {"steps": 5, "micro_batch": 2}})");
    const TrainConfig config = load_config(
        parse({path.c_str(), "--train.steps=6", "--train.steps=7", "--train.micro_batch=3"}));
    CHECK(config.train.steps == 7);
    CHECK(config.train.micro_batch == 3);
    CHECK(config.checkpoint.dir == "runs/default/checkpoints");
    CHECK(error_of("config.range", [&] {
              load_config(parse({path.c_str(), "--train.steps=-6"}));
          }) == Contains("command line: train.steps = -6"));
    CHECK(error_of("config.combination", [&] {
              load_config(parse({path.c_str(), "--train.steps=0"}));
          }) == Contains("train.steps = 0 and train.epochs = 0"));
    CHECK(error_of("config.missing_file", [&] {
              load_config(parse({(folder / "none.json").c_str()}));
          }) == Contains("none.json"));
}

TEST_CASE("cli: help and version name every key, and help fits 100 columns") {
    const std::string help = help_text();
    for (const ConfigKeyInfo& key : config_keys()) {
        CHECK(help.find(str("  --", key.name, "=")) != std::string::npos);
        CHECK(help_markdown().find(str("| `", key.name, "` |")) != std::string::npos);
    }
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);)
        CHECK_MESSAGE(line.size() <= 100, line);
    CHECK(help.find("[run.json]") != std::string::npos);
    CHECK(version_text().rfind("train_gpt 0.", 0) == 0);
}

TEST_CASE("cli: docs/config.md is the table (./train_gpt --help-markdown > docs/config.md)") {
    CHECK(read_all(source_dir() + "/docs/config.md") == help_markdown());
}

TEST_CASE("cli: the committed configurations are valid") {
    int count = 0;
    for (const auto& file : std::filesystem::directory_iterator(source_dir() + "/configs")) {
        if (file.path().extension() != ".json") continue;
        INFO(file.path().string());
        TrainConfig config = read_config_file(file.path().string());
        CHECK_NOTHROW(check_config(config, ConfigUse::train));
        ++count;
    }
    CHECK(count >= 2);
}
