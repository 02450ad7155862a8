// ./golden_check DIR [--device=cpu|cuda] [--precision.params=fp32|bf16] [--model.recompute=...]
#include <cstdio>

#include <CLI/CLI.hpp>

#include "engine/train/golden.h"
#include "kernels/blas.h"
#include "tools/main.h"

namespace {

using namespace ingot;

int body(int argc, char** argv) {
    CLI::App app("Compares the engine with a golden folder; exit status 0 when every line passes.");
    std::string folder;
    std::string device = "cpu";
    std::string precision = "fp32";
    std::string recompute = "none";
    GoldenOptions options;
    app.add_option("DIR", folder, "folder with config.json, model.safetensors, golden.*")
        ->required();
    app.add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
    app.add_option("--precision.params", precision, "fp32 or bf16")
        ->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--model.recompute", recompute, "none, light or block")
        ->check(CLI::IsMember({"none", "light", "block"}));
    app.add_option("--train.micro_batch", options.micro_batch, "rows of a micro-step; 0 = all");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 1;
    }
    blas::verify();
    options.dtype = precision == "bf16" ? DType::bf16 : DType::f32;
    options.recompute = recompute_from_name(recompute);
    const auto context = device == "cuda" ? Context::make_cuda(0) : Context::make_cpu();
    int failures = 0;
    for (const GoldenLine& line : run_golden_check(*context, folder, options)) {
        std::printf("%-4s %-48s error %10.3e  limit %10.3e\n", line.passes() ? "ok" : "FAIL",
                    line.what.c_str(), line.error, line.limit);
        failures += line.passes() ? 0 : 1;
    }
    std::printf("golden_check %s on %s, %s: %s\n", folder.c_str(), device.c_str(),
                precision.c_str(), failures == 0 ? "passed" : "FAILED");
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return ingot::run_main([&] { return body(argc, argv); });
}
