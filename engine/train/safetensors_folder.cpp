#include <set>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"
#include "engine/train/safetensors.h"
#include "engine/train/safetensors_header.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail_index(const std::string& path, const std::string& reason) {
    fail("safetensors.index", "safetensors: ", path, " is refused: ", reason,
         "; get or export the folder again");
}

// weight_map: tensor name -> file name.
std::map<std::string, std::string> read_index(const std::string& path) {
    constexpr std::int64_t kLimitBytes = 100 << 20;
    const std::string text = read_text_file(path, kLimitBytes);
    std::vector<std::set<std::string>> keys;  // of the open objects
    const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key && !keys.back().insert(parsed).second) {
            fail_index(path, str("the name ", parsed.get<std::string>(), " is there twice"));
        }
        return true;
    };
    Json root;
    try {
        root = Json::parse(text, watch);
    } catch (const Json::exception& error) {
        fail_index(path, str("it is not JSON (", error.what(), ")"));
    }
    if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
        fail_index(path, "it has no weight_map");
    }
    std::map<std::string, std::string> weight_map;
    for (const auto& [tensor, file] : root["weight_map"].items()) {
        if (!file.is_string())
            fail_index(path, str("the file of tensor ", tensor, " is no string"));
        weight_map[tensor] = file.get<std::string>();
    }
    return weight_map;
}

bool is_plain_file_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& folder) : folder_(folder) {
    const std::string index_path = folder + "/model.safetensors.index.json";
    if (!file_exists(index_path)) {
        const std::string path = folder + "/model.safetensors";
        ENSURE(file_exists(path), "safetensors.index", "safetensors: ", folder,
               " has no model.safetensors and no model.safetensors.index.json",
               file_exists(folder + "/pytorch_model.bin")
                   ? "; it has pytorch_model.bin: save the model again with safe_serialization=True"
                   : "; give a folder of a Hugging Face model");
        files_.push_back(std::make_unique<SafetensorsReader>(path));
        for (const SafetensorsEntry& e : files_[0]->entries()) {
            file_by_name_[e.name] = files_[0].get();
        }
        return;
    }
    std::map<std::string, SafetensorsReader*> opened;
    const std::map<std::string, std::string> weight_map = read_index(index_path);
    for (const auto& [tensor, file] : weight_map) {
        if (!is_plain_file_name(file)) {
            fail_index(index_path, str("the file of tensor ", tensor, " is \"", file,
                                       "\", needed is a plain file name in the folder"));
        }
        const std::string path = folder + "/" + file;
        if (opened.find(file) == opened.end()) {
            if (!file_exists(path)) {
                fail_index(index_path,
                           str("tensor ", tensor, " is in ", file, ", which is missing"));
            }
            files_.push_back(std::make_unique<SafetensorsReader>(path));
            opened[file] = files_.back().get();
        }
        if (opened[file]->find(tensor) == nullptr) {
            fail_index(index_path, str("tensor ", tensor, " is listed in ", file,
                                       ", but that file does not hold it"));
        }
        file_by_name_[tensor] = opened[file];
    }
    for (const auto& [file, reader] : opened) {
        for (const SafetensorsEntry& e : reader->entries()) {
            if (file_by_name_.find(e.name) == file_by_name_.end()) {
                fail_index(index_path, str("tensor ", e.name, " of ", file, " is not listed"));
            }
        }
    }
}

std::vector<std::string> SafetensorsFolder::names() const {
    std::vector<std::string> result;
    for (const auto& [name, file] : file_by_name_)
        result.push_back(name);
    return result;
}

bool SafetensorsFolder::contains(const std::string& name) const {
    return file_by_name_.find(name) != file_by_name_.end();
}

const SafetensorsReader& SafetensorsFolder::file_of(const std::string& name) const {
    const auto found = file_by_name_.find(name);
    ENSURE(found != file_by_name_.end(), "safetensors.missing_tensor", "safetensors: ", folder_,
           " has no tensor ", name, " among its ", file_by_name_.size());
    return *found->second;
}

const SafetensorsEntry& SafetensorsFolder::entry(const std::string& name) const {
    return file_of(name).entry(name);
}

void SafetensorsFolder::read_as_f32(const std::string& name,
                                    std::int64_t begin,
                                    std::int64_t count,
                                    float* out) const {
    file_of(name).read_as_f32(name, begin, count, out);
}

}  // namespace ingot
