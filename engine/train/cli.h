// The command line of train_gpt:
//     ./train_gpt [run.json] [--section.key=value ...] [--plan] [--help] [--help-markdown]
//     [--version]
// Without a file it reads ./run.json. Where a key is given twice, the later one holds.
// Errors: config.command_line, and those of config.h.
#pragma once

#include <string>
#include <vector>

#include "engine/train/config.h"

namespace ingot {

struct CommandLine {
    enum class Action { train, plan, help, help_markdown, version };

    Action action = Action::train;
    std::string config_path = "run.json";
    std::vector<std::string> overrides;  // "train.steps=100", in the order given
};

// argv[0] is skipped.
CommandLine parse_command_line(int argc, const char* const* argv);

// The file, the overrides, and check_config().
TrainConfig load_config(const CommandLine& command_line);

std::string help_text();      // for --help: 100 columns
std::string help_markdown();  // docs/config.md
std::string version_text();   // "train_gpt 0.1.0 (Release, GNU 12.2.0, CUDA no, OpenBLAS yes)"

}  // namespace ingot
