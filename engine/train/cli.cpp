#include "engine/train/cli.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "engine/core/build_config.h"
#include "engine/core/check.h"
#include "engine/train/config_table.h"

namespace ingot {
namespace {

constexpr const char* kUsage =
    "./train_gpt [run.json] [--section.key=value ...] [--plan] [--help] [--version]";

void check_setting(const std::string& argument) {
    const std::string place = "command line";
    if (argument.rfind("--", 0) != 0) {
        const std::string name = argument.substr(argument.find_first_not_of('-'));
        if (argument.size() > 1 && argument[0] == '-') fail_unknown_key(place, name, "?");
        fail("config.command_line", "config: ", place, ": ", argument,
             " is one argument too many; usage: ", kUsage);
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals != std::string::npos) return;  // apply_override() looks at the rest
    if (find_config_key(name) == nullptr) fail_unknown_key(place, name, "?");
    fail("config.command_line", "config: ", place, ": ", argument, " has no value; write ",
         argument, "=VALUE");
}

// "text", broken at spaces so that each line has at most `width` characters, indented.
std::string wrap(const std::string& text, std::size_t indent, std::size_t width) {
    std::string out;
    std::string line(indent, ' ');
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (line.size() > indent && line.size() + 1 + end - begin > width) {
            out += line + "\n";
            line.assign(indent, ' ');
        }
        if (line.size() > indent) line += ' ';
        line.append(text, begin, end - begin);
        begin = end + 1;
    }
    return out + line + "\n";
}

std::string section_of(const std::string& name) {
    return name.substr(0, name.find('.'));
}

std::string shown_default(const ConfigKeyInfo& key) {
    return key.initial.empty() ? "\"\"" : key.initial;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    CommandLine result;
    CLI::App app("Trains a language model on token shards");
    bool plan = false, help = false, markdown = false, version = false;
    app.set_help_flag("");
    app.add_option("config", result.config_path);
    app.add_flag("--plan", plan);
    app.add_flag("-h,--help", help);
    app.add_flag("--help-markdown", markdown);
    app.add_flag("--version", version);
    app.allow_extras();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        fail("config.command_line", "config: command line: ", error.what(), "; usage: ", kUsage);
    }
    using Action = CommandLine::Action;
    // A mistyped setting is named before "--help" in the same line hides it, except for --help.
    if (help) {
        result.action = Action::help;
        return result;
    }
    for (const std::string& argument : app.remaining()) {
        check_setting(argument);
        result.overrides.push_back(argument.substr(2));
    }
    result.action = markdown  ? Action::help_markdown
                    : version ? Action::version
                    : plan    ? Action::plan
                              : Action::train;
    return result;
}

TrainConfig load_config(const CommandLine& command_line) {
    TrainConfig config = read_config_file(command_line.config_path);
    for (const std::string& assignment : command_line.overrides)
        apply_override(config, assignment);
    check_config(config, command_line.action == CommandLine::Action::plan ? ConfigUse::plan
                                                                          : ConfigUse::train);
    return config;
}

std::string help_text() {
    constexpr std::size_t kColumns = 100;
    std::string out =
        str("Trains a language model on token shards.\n\nUsage: ", kUsage,
            "\n\n"
            "  run.json          the configuration; ./run.json when none is given (`make run` "
            "writes it)\n"
            "  --section.key=V   overrides a key of the file; the last one holds\n"
            "  --plan            prints what the run needs in memory, without starting it\n"
            "  --help-markdown   prints this list as docs/config.md\n"
            "  --version         prints version and build\n\n"
            "Exit status: 0 done; 1 refused or failed, with a message; 128 + N ended by signal N "
            "(130 ^C,\n"
            "143 SIGTERM) after the present step, with its weights. A second signal ends the "
            "process at once.\n\n"
            "Keys (= default), allowed values, meaning:\n");
    std::string section;
    for (const ConfigKeyInfo& key : config_keys()) {
        if (section_of(key.name) != section) {
            section = section_of(key.name);
            out += "\n";
        }
        out += str("  --", key.name, "=", shown_default(key), "\n");
        out += wrap(str(key.help, ". Allowed: ", key.allowed, "."), 8, kColumns);
    }
    return out;
}

std::string help_markdown() {
    std::string out =
        "# Configuration\n\n"
        "A run is one JSON file of sections, `{\"train\": {\"steps\": 1000}, ...}`, and overrides "
        "on the\n"
        "command line, `--train.steps=2000`; the last one given holds. Unknown and duplicate keys, "
        "values\n"
        "of another type and values out of range are refused. The resolved configuration is saved "
        "as\n"
        "`config.json` in `log.dir`. This page is the output of `./train_gpt --help-markdown`.\n";
    std::string section;
    for (const ConfigKeyInfo& key : config_keys()) {
        if (section_of(key.name) != section) {
            section = section_of(key.name);
            out += str("\n## ", section,
                       "\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n");
        }
        out += str("| `", key.name, "` | `", shown_default(key), "` | ", key.allowed, " | ",
                   key.help, " |\n");
    }
    out +=
        "\n## Not in this release\n\n"
        "These keys are known and refused, except with the values that ask for nothing.\n\n"
        "| key | accepted | instead |\n|---|---|---|\n";
    for (const LaterKey& key : later_keys()) {
        std::string accepted;
        for (const char* word : key.accepted) {
            accepted += str(accepted.empty() ? "" : ", ", "`", word, "`");
        }
        out += str("| `", key.name, "` | ", accepted, " | ", key.instead, " |\n");
    }
    return out;
}

std::string version_text() {
    return str("train_gpt ", kVersion, " (", kBuildType, ", ", kCompiler, ", CUDA ",
               kHasCuda ? "yes" : "no", ", cuDNN ", kHasCudnn ? "yes" : "no", ", OpenBLAS ",
               kHasOpenBlas ? "yes" : "no", ")");
}

}  // namespace ingot
