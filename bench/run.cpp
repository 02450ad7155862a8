// The command: which cases run on which device, and where the results go.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/kernels/cases.h"
#include "kernels/attention_method.h"
#include "kernels/blas.h"
#include "kernels/matmul_plan.h"

namespace ingot::bench {
namespace {

std::unique_ptr<Context> make_context(const std::string& device) {
    ENSURE(device == "auto" || device == "cpu" || device == "cuda", "bench.device",
           "--device=", device, ", must be auto, cpu or cuda");
    const bool is_cuda = device == "cuda" || (device == "auto" && pci_bus_has_nvidia_device());
    return is_cuda ? Context::make_cuda(0) : Context::make_cpu();
}

std::string machine_of(const Context& context) {
    if (context.device() == Device::cuda) return cuda_device_info(context.device_index()).name;
    return blas::description();
}

// The one thing by which other programs know the device, whatever CUDA_VISIBLE_DEVICES says.
std::string description_of(const Context& context) {
    const std::string name = machine_of(context);
    if (context.device() != Device::cuda) return name;
    return str(name, ", ", cuda_device_info(context.device_index()).pci_bus_id);
}

// "cuDNN 9.19.0": the library that the engine loads; or why it loads none.
std::string cudnn_of(Device device) {
    if (device != Device::cuda) return "";
    try {
        return require_attention_library(AttentionMethod::cudnn);
    } catch (const Error& error) {
        return error.what();
    }
}

nlohmann::json to_json(const Roof& roof) {
    return {{"copy_gb_per_s", roof.copy_bytes_per_s * 1e-9},
            {"f32_tflop_per_s", roof.f32_flops_per_s * 1e-12},
            {"bf16_tflop_per_s", roof.bf16_flops_per_s * 1e-12}};
}

std::vector<double> samples_us(const Result& result) {
    std::vector<double> us;
    for (const double seconds : result.samples)
        us.push_back(seconds * 1e6);
    return us;
}

nlohmann::json to_json(const Case& c, const Measured& measured, const Roof& roof) {
    const Result& r = measured.own;
    nlohmann::json json = {{"op", c.op},
                           {"shape", c.shape},
                           {"dtype", name_of(c.dtype)},
                           {"bytes", c.bytes},
                           {"flops", c.flops},
                           {"us", r.seconds * 1e6},
                           {"spread", r.spread},
                           {"samples_us", samples_us(r)},
                           {"calls_per_sample", r.calls},
                           {"input_sets", r.input_sets},
                           {"is_flushed", r.is_flushed},
                           {"gb_per_s", c.bytes / r.seconds * 1e-9},
                           {"tflop_per_s", c.flops / r.seconds * 1e-12},
                           {"roof_percent", 100.0 * roof.seconds(c) / r.seconds},
                           {"library", nullptr},
                           {"library_us", nullptr}};
    if (!measured.library.samples.empty()) {
        json["library"] = c.library.name;
        json["library_us"] = measured.library.seconds * 1e6;
        json["library_samples_us"] = samples_us(measured.library);
    }
    return json;
}

std::vector<Case> selected_cases(Device device, const std::vector<std::string>& filters) {
    std::vector<Case> selected;
    for (const Case& c : all_cases(device)) {
        const std::string text = str(c.op, " ", c.shape, " ", name_of(c.dtype));
        const bool fits = std::any_of(filters.begin(), filters.end(), [&](const auto& filter) {
            return text.find(filter) != std::string::npos;
        });
        if (filters.empty() || fits) selected.push_back(c);
    }
    ENSURE(!selected.empty(), "bench.filter", "--filter=", filters.front(),
           " matches no case; --list prints them");
    return selected;
}

}  // namespace

void run(const Options& options) {
    ENSURE(options.seconds > 0.0, "bench.seconds", "--seconds=", options.seconds,
           ", must be above 0");
    const std::unique_ptr<Context> context = make_context(options.device);
    const Device device = context->device();
    if (options.is_describe) {
        std::cout << description_of(*context) << "\n";
        return;
    }
    const std::vector<Case> cases = selected_cases(device, options.filters);
    if (options.is_list) {
        for (const Case& c : cases)
            std::cout << c.op << " " << c.shape << " " << name_of(c.dtype) << "\n";
        return;
    }
    // Opened first: a path that cannot be written is found before the minutes of measuring.
    std::ofstream file;
    if (!options.json.empty()) {
        file.open(options.json);
        ENSURE(file.good(), "bench.json", "--json=", options.json, " cannot be written");
    }
    // As in a training run, matmuls take the algorithm that is fastest when timed: each shape is
    // tuned in its warm-up. The library's calls run where nothing is tuned.
    matmul_begin_tuning(context->compute_stream(), {});
    const std::unique_ptr<Context> library_context = make_context(options.device);
    const Roof roof = measure_roof(*context, options.seconds);
    const std::string cudnn = cudnn_of(device);
    std::cout << description_of(*context) << (cudnn.empty() ? "" : "\n") << cudnn << "\nroof: copy "
              << roof.copy_bytes_per_s * 1e-9 << " GB/s, matmul f32 "
              << roof.f32_flops_per_s * 1e-12 << " TFLOP/s, bf16 " << roof.bf16_flops_per_s * 1e-12
              << " TFLOP/s\n"
              << header_line() << std::endl;
    nlohmann::json results = nlohmann::json::array();
    for (const Case& c : cases) {
        Measured measured;
        measured.own = measure(*context, c, options.seconds);
        measured.library = measure_library(*library_context, c, options.seconds);
        std::cout << line(c, measured, roof, device) << std::endl;
        results.push_back(to_json(c, measured, roof));
    }
    if (options.json.empty()) return;
    const nlohmann::json all = {{"device", name_of(device)},
                                {"machine", machine_of(*context)},
                                {"version", kVersion},
                                {"compiler", kCompiler},
                                {"cudnn", cudnn},
                                {"roof", to_json(roof)},
                                {"cases", results}};
    file << all.dump(1) << "\n";
    file.close();
    ENSURE(!file.fail(), "bench.json", "--json=", options.json, ": writing failed (disk full?)");
}

}  // namespace ingot::bench
