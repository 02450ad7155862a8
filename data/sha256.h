// SHA-256 (FIPS 180-4), to tell whether a tokenizer.json is the one that shards were made with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ingot {

using Sha256Digest = std::array<std::uint8_t, 32>;

Sha256Digest sha256(const void* bytes, std::size_t size_bytes);
Sha256Digest sha256_of_file(const std::string& path);  // throws tokenizer.open
std::string hex_string(const Sha256Digest& digest);

}  // namespace ingot
