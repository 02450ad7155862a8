#include "data/shard_writer.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "engine/core/check.h"

namespace ingot {
namespace {

template <class T>
void put(std::vector<unsigned char>& bytes, std::size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

std::vector<unsigned char> encode_ids(const std::vector<std::int64_t>& ids, std::int64_t bytes) {
    std::vector<unsigned char> encoded;
    encoded.reserve(ids.size() * static_cast<std::size_t>(bytes));
    for (const std::int64_t id : ids) {
        for (std::int64_t i = 0; i < bytes; ++i)
            encoded.push_back(static_cast<unsigned char>(id >> (8 * i)));
    }
    return encoded;
}

void write_file(const std::string& path, const std::vector<unsigned char>& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    ENSURE(file, "shard.write", path, ": cannot write ", bytes.size(),
           " bytes: ", std::strerror(errno));
}

}  // namespace

std::vector<unsigned char> encode_shard_header(const ShardHeader& h) {
    std::vector<unsigned char> bytes(4096, 0);
    std::memcpy(bytes.data(), "INGOTTOK", 8);
    put(bytes, 8, std::uint32_t{1});
    put(bytes, 12, static_cast<std::uint32_t>(h.token_bytes));
    put(bytes, 16, h.num_tokens);
    put(bytes, 24, h.num_documents);
    put(bytes, 32, static_cast<std::uint32_t>(h.vocab_size));
    put(bytes, 36, static_cast<std::uint32_t>(h.eos_id));  // -1 becomes 0xFFFFFFFF: none
    put(bytes, 40, static_cast<std::uint32_t>(h.split));
    put(bytes, 44, static_cast<std::uint32_t>(h.shard_index));
    put(bytes, 48, h.tokens_offset);
    put(bytes, 56, h.index_offset);
    std::memcpy(bytes.data() + 64, h.tokenizer_sha256.data(), h.tokenizer_sha256.size());
    return bytes;
}

void write_token_shard(const std::string& path,
                       ShardHeader header,
                       const std::vector<std::int64_t>& tokens,
                       const std::vector<std::int64_t>& document_starts) {
    header.num_tokens = static_cast<std::int64_t>(tokens.size());
    header.num_documents = static_cast<std::int64_t>(document_starts.size());
    header.tokens_offset = 4096;
    header.index_offset =
        (header.tokens_offset + header.num_tokens * header.token_bytes + 7) / 8 * 8;
    std::vector<unsigned char> bytes = encode_shard_header(header);
    const std::vector<unsigned char> ids = encode_ids(tokens, header.token_bytes);
    bytes.insert(bytes.end(), ids.begin(), ids.end());
    bytes.resize(static_cast<std::size_t>(header.index_offset), 0);
    const std::vector<unsigned char> index = encode_ids(document_starts, 8);
    bytes.insert(bytes.end(), index.begin(), index.end());
    write_file(path, bytes);
}

void write_llmc_shard(const std::string& path,
                      std::int64_t token_bytes,
                      const std::vector<std::int64_t>& tokens) {
    std::vector<unsigned char> bytes(1024, 0);
    put(bytes, 0, std::uint32_t{token_bytes == 2 ? 20240520U : 20240801U});
    put(bytes, 4, std::uint32_t{token_bytes == 2 ? 1U : 7U});
    put(bytes, 8, static_cast<std::uint32_t>(tokens.size()));
    const std::vector<unsigned char> ids = encode_ids(tokens, token_bytes);
    bytes.insert(bytes.end(), ids.begin(), ids.end());
    write_file(path, bytes);
}

}  // namespace ingot
