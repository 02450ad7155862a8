// ./export_hf CHECKPOINT OUT_DIR [--dtype=float32|bfloat16]
#include <iostream>

#include <CLI/CLI.hpp>

#include "engine/train/hf_weights.h"
#include "tools/main.h"

namespace {

using namespace ingot;

int body(int argc, char** argv) {
    CLI::App app(
        "Writes a checkpoint as a folder in Hugging Face's layout: model.safetensors, "
        "config.json and the tokenizer's files.");
    std::string checkpoint;
    HfExport options;
    std::string dtype = "float32";
    app.add_option("CHECKPOINT", checkpoint, "folder of a checkpoint")->required();
    app.add_option("OUT_DIR", options.folder, "folder to write")->required();
    app.add_option("--dtype", dtype, "float32 or bfloat16")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 1;
    }
    options.dtype = dtype == "bfloat16" ? DType::bf16 : DType::f32;
    options.tokenizer_folder = checkpoint;
    convert_hf_folder(checkpoint, options);
    std::cout << "exported " << checkpoint << " to " << options.folder << " (" << dtype << ")\n";
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return ingot::run_main([&] { return body(argc, argv); });
}
