#include "engine/train/hf_weights.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <vector>

#include "model/families/gpt2.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceElements = 1 << 20;  // 4 MiB of host memory at a time

// What travels with a tokenizer, where it is there.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "added_tokens.json",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           "tokenizer.model"};

std::string without_prefix(const std::string& name) {
    const std::string prefix = "transformer.";
    return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
}

bool is_mask_buffer(const std::string& name) {
    static const std::regex kPattern(R"(h\.\d+\.attn\.(bias|masked_bias))");
    return std::regex_match(without_prefix(name), kPattern);
}

std::string shape_string(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += str(i == 0 ? "" : ", ", shape[i]);
    return text + "]";
}

// The name under which the folder holds a parameter; "" when it does not.
std::string name_in(const SafetensorsFolder& folder, const std::string& hf_name) {
    if (folder.contains(hf_name)) return hf_name;
    return folder.contains(without_prefix(hf_name)) ? without_prefix(hf_name) : "";
}

std::vector<float> read_tensor(const SafetensorsFolder& folder, const std::string& name) {
    std::vector<float> values(static_cast<std::size_t>(folder.entry(name).numel()));
    folder.read_as_f32(name, 0, folder.entry(name).numel(), values.data());
    return values;
}

// Refuses tensors that no parameter of the table takes.
void check_names(const SafetensorsFolder& folder,
                 const ParamTable& table,
                 const std::string& path) {
    for (const std::string& name : folder.names()) {
        if (is_mask_buffer(name) || name == "lm_head.weight") continue;
        const bool known =
            std::any_of(table.params.begin(), table.params.end(), [&](const ParamSpec& spec) {
                return without_prefix(spec.hf_name) == without_prefix(name);
            });
        ENSURE(known, "hf.unknown_tensor", path, ": tensor ", name,
               " belongs to no parameter of this model; is config.json the one of these weights?");
    }
}

// A head stored beside a tied embedding must be a copy of it.
void check_tied_head(const SafetensorsFolder& folder, const std::string& path) {
    if (!folder.contains("lm_head.weight")) return;
    const std::string embedding = name_in(folder, "transformer.wte.weight");
    ENSURE(!embedding.empty() &&
               folder.entry(embedding).shape == folder.entry("lm_head.weight").shape &&
               read_tensor(folder, embedding) == read_tensor(folder, "lm_head.weight"),
           "hf.untied_head", path,
           ": lm_head.weight differs from transformer.wte.weight, but the head of this model is "
           "tied to the embedding; untied heads are not supported");
}

void check_shape(const ParamSpec& spec, const SafetensorsEntry& entry, const std::string& path) {
    ENSURE(entry.shape == spec.hf_shape(), "hf.shape", path, ": ", entry.name, " is ",
           shape_string(entry.shape), ", config.json asks for ", shape_string(spec.hf_shape()));
}

std::string require_name(const SafetensorsFolder& folder,
                         const ParamSpec& spec,
                         const std::string& path) {
    const std::string name = name_in(folder, spec.hf_name);
    ENSURE(!name.empty(), "hf.missing_tensor", path, ": tensor ", spec.hf_name, " is missing");
    return name;
}

// Everything but the weights: config.json and the tokenizer.
void write_side_files(const DecoderConfig& config, const HfExport& options) {
    write_text_file(options.folder + "/config.json",
                    write_gpt2_config(config, options.dtype == DType::bf16 ? "bfloat16" : "float32",
                                      options.eos_id));
    if (options.tokenizer_folder.empty()) return;
    for (const char* file : kTokenizerFiles) {
        const fs::path source = fs::path(options.tokenizer_folder) / file;
        if (!fs::exists(source)) continue;
        std::error_code error;
        const fs::path target = fs::path(options.folder) / file;
        if (fs::equivalent(source, target, error)) continue;
        fs::copy_file(source, target, fs::copy_options::overwrite_existing, error);
        ENSURE(!error, "hf.tokenizer", "copying ", source.string(), " to ", target.string(), ": ",
               error.message());
    }
}

// Calls visit(begin, count) for pieces of [0, numel) of at most kPieceElements.
template <class Visit>
void for_each_piece(std::int64_t numel, Visit&& visit) {
    for (std::int64_t begin = 0; begin < numel; begin += kPieceElements) {
        visit(begin, std::min(kPieceElements, numel - begin));
    }
}

// Writes model.safetensors. emit(spec, write) calls write(begin, count, values) for pieces of the
// tensor in the file's layout.
template <class Emit>
void write_weights(const ParamTable& table, const HfExport& options, Emit&& emit) {
    std::vector<SafetensorsEntry> entries;
    for (const ParamSpec& spec : table.params) {
        SafetensorsEntry entry;
        entry.name = spec.hf_name;
        entry.dtype = options.dtype == DType::bf16 ? "BF16" : "F32";
        entry.shape = spec.hf_shape();
        entries.push_back(std::move(entry));
    }
    SafetensorsWriter writer(options.folder + "/model.safetensors", std::move(entries));
    for (const ParamSpec& spec : table.params) {
        emit(spec, [&](std::int64_t begin, std::int64_t count, const float* values) {
            writer.write_f32(spec.hf_name, begin, count, values);
        });
    }
    writer.finish();
}

}  // namespace

void to_hf_layout(const ParamSpec& spec, const float* ours, float* theirs) {
    if (spec.hf_layout == HfLayout::same) {
        std::copy(ours, ours + spec.stored_numel(), theirs);
        return;
    }
    const std::int64_t columns = spec.shape[1];
    for (std::int64_t row = 0; row < spec.stored_rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            theirs[column * spec.stored_rows + row] = ours[row * columns + column];
        }
    }
}

void from_hf_layout(const ParamSpec& spec, const float* theirs, float* ours) {
    std::fill(ours + spec.stored_numel(), ours + spec.numel(), 0.0F);
    if (spec.hf_layout == HfLayout::same) {
        std::copy(theirs, theirs + spec.stored_numel(), ours);
        return;
    }
    const std::int64_t columns = spec.shape[1];
    for (std::int64_t row = 0; row < spec.stored_rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            ours[row * columns + column] = theirs[column * spec.stored_rows + row];
        }
    }
}

std::int64_t hf_staging_bytes(const ParamTable& table) {
    std::int64_t bytes = 0;
    for (const ParamSpec& spec : table.params) {
        const std::int64_t elements = spec.hf_layout == HfLayout::same
                                          ? std::min(kPieceElements, spec.numel())
                                          : 2 * spec.numel();
        bytes = std::max(bytes, 4 * elements);
    }
    return bytes;
}

void import_hf_weights(const std::string& folder, ParamStore& store) {
    const SafetensorsFolder weights(folder);
    check_names(weights, store.table(), folder);
    check_tied_head(weights, folder);
    std::vector<float> piece;
    for (const ParamSpec& spec : store.table().params) {
        const std::string name = require_name(weights, spec, folder);
        check_shape(spec, weights.entry(name), folder);
        if (spec.hf_layout == HfLayout::transposed) {
            std::vector<float> ours(static_cast<std::size_t>(spec.numel()));
            from_hf_layout(spec, read_tensor(weights, name).data(), ours.data());
            store.write(spec, 0, spec.numel(), ours.data());
            continue;
        }
        // Vocabulary padding is behind the stored rows and stays zero.
        for_each_piece(spec.stored_numel(), [&](std::int64_t begin, std::int64_t count) {
            piece.resize(static_cast<std::size_t>(count));
            weights.read_as_f32(name, begin, count, piece.data());
            store.write(spec, begin, count, piece.data());
        });
    }
}

void export_hf(const ParamStore& store, const DecoderConfig& config, const HfExport& options) {
    make_folders(options.folder);
    std::vector<float> piece;
    write_weights(store.table(), options, [&](const ParamSpec& spec, auto&& write) {
        if (spec.hf_layout == HfLayout::transposed) {
            std::vector<float> ours(static_cast<std::size_t>(spec.numel()));
            std::vector<float> theirs(static_cast<std::size_t>(spec.stored_numel()));
            store.read(spec, 0, spec.numel(), ours.data());
            to_hf_layout(spec, ours.data(), theirs.data());
            write(0, spec.stored_numel(), theirs.data());
            return;
        }
        for_each_piece(spec.stored_numel(), [&](std::int64_t begin, std::int64_t count) {
            piece.resize(static_cast<std::size_t>(count));
            store.read(spec, begin, count, piece.data());
            write(begin, count, piece.data());
        });
    });
    write_side_files(config, options);
}

void convert_hf_folder(const std::string& source, HfExport options) {
    std::error_code not_there;
    ENSURE(!fs::equivalent(source, options.folder, not_there), "hf.same_folder", "export of ",
           source, " into itself; name another output folder");
    const DecoderConfig config = read_gpt2_config(source);
    options.eos_id = read_gpt2_eos_id(source);
    const ParamTable table = make_gpt2_param_table(config);
    const SafetensorsFolder weights(source);
    check_names(weights, table, source);
    check_tied_head(weights, source);
    for (const ParamSpec& spec : table.params) {
        check_shape(spec, weights.entry(require_name(weights, spec, source)), source);
    }
    make_folders(options.folder);
    std::vector<float> piece;
    write_weights(table, options, [&](const ParamSpec& spec, auto&& write) {
        const std::string name = require_name(weights, spec, source);
        for_each_piece(spec.stored_numel(), [&](std::int64_t begin, std::int64_t count) {
            piece.resize(static_cast<std::size_t>(count));
            weights.read_as_f32(name, begin, count, piece.data());
            write(begin, count, piece.data());
        });
    });
    write_side_files(config, options);
}

}  // namespace ingot
