// The JSON header of a safetensors file. For safetensors.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/train/safetensors.h"

namespace ingot {

struct SafetensorsHeader {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, std::string> metadata;
};

std::int64_t safetensors_size_of_or_zero(const std::string& dtype);  // 0 for an unknown dtype

[[noreturn]] void fail_safetensors(const std::string& path, const std::string& reason);

// Parses and checks everything; entries come back by offset and cover data_bytes without hole or
// overlap. `path` is only named in errors. Errors: safetensors.bad.
SafetensorsHeader parse_safetensors_header(const std::string& text,
                                           std::int64_t data_bytes,
                                           const std::string& path);

// The header text, padded with spaces so that 8 + its length is a multiple of 8.
std::string format_safetensors_header(const SafetensorsHeader& header, const std::string& path);

}  // namespace ingot
