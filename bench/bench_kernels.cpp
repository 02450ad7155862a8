// bench_kernels: how fast each op is on this machine, and how close to its roof.
#include <iostream>

#include <CLI/CLI.hpp>

#include "bench/bench.h"

int main(int argc, char** argv) {
    ingot::bench::Options options;
    options.device = "auto";
    CLI::App app("Microbenchmarks of the kernels; one line a case");
    app.add_option("--filter", options.filters,
                   "only cases with this text in 'op shape dtype'; may be given more than once");
    app.add_option("--json", options.json, "write the results to this file, too");
    app.add_option("--device", options.device, "auto, cpu or cuda")->capture_default_str();
    app.add_option("--seconds", options.seconds, "measuring time of a case")->capture_default_str();
    app.add_flag("--list", options.is_list, "print the cases and stop");
    app.add_flag("--describe", options.is_describe,
                 "print the device's name and PCI bus id and stop");
    app.footer(
        "Rows without a library's time (-) are of ops that PyTorch alone has: "
        "bench/torch_kernels.py\ntimes those, and tools/gpu_check.sh kernels records both "
        "in one row.");
    CLI11_PARSE(app, argc, argv);
    try {
        ingot::bench::run(options);
    } catch (const ingot::Error& error) {
        std::cerr << "bench_kernels: " << error.what() << " [" << error.code() << "]\n";
        return 1;
    }
    return 0;
}
