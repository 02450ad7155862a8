// ./golden_check DIR [--device=cpu|cuda] [--section.key=value ...]
#include <cstdio>

#include <CLI/CLI.hpp>

#include "engine/core/check.h"
#include "engine/train/golden.h"
#include "kernels/blas.h"
#include "tools/main.h"

namespace {

using namespace ingot;

int body(int argc, char** argv) {
    CLI::App app("Compares the engine with a golden folder; exit status 0 when every line passes.");
    std::string folder;
    std::string device = "cpu";
    app.add_option("DIR", folder, "folder with config.json, model.safetensors, golden.*")
        ->required();
    app.add_option("--device", device, "the same as --train.device");
    app.allow_extras();
    app.footer("  --section.key=value         keys of docs/config.md: " + golden_keys());
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 1;
    }
    std::vector<std::string> settings = {"--train.device=" + device};
    for (const std::string& setting : app.remaining())
        settings.push_back(setting);
    const GoldenCommand command = golden_command(settings);
    blas::verify();
    const auto context =
        command.device == Device::cuda ? Context::make_cuda(0) : Context::make_cpu();
    int failures = 0;
    for (const GoldenLine& line : run_golden_check(*context, folder, command.options)) {
        std::printf("%-4s %-48s error %10.3e  limit %10.3e\n", line.passes() ? "ok" : "FAIL",
                    line.what.c_str(), line.error, line.limit);
        failures += line.passes() ? 0 : 1;
    }
    std::printf("golden_check %s on %s, %s: %s\n", folder.c_str(), name_of(command.device),
                command.options.dtype == DType::bf16 ? "bf16" : "fp32",
                failures == 0 ? "passed" : "FAILED");
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return ingot::run_main([&] { return body(argc, argv); });
}
