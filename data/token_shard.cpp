#include "data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iomanip>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/core/check.h"

namespace ingot {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr char kMagic[] = "INGOTTOK";
constexpr std::int64_t kMagicBytes = 8;
constexpr std::int64_t kHeaderBytes = 4096;
constexpr std::int64_t kLlmcHeaderBytes = 1024;
constexpr std::uint32_t kLlmcMagic16 = 20240520;  // version 1, 16-bit ids
constexpr std::uint32_t kLlmcMagic32 = 20240801;  // version 7, 32-bit ids
constexpr std::uint32_t kNoEos = 0xFFFFFFFFU;
constexpr std::int64_t kMaxVocab16 = 65536;                 // 16-bit ids reach 65535
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;   // ids are int32 in memory
constexpr std::int64_t kScanBytes = std::int64_t{1} << 20;  // between two checks of the file's size

template <class T>
T field(const unsigned char* header, std::int64_t offset) {
    T value;
    std::memcpy(&value, header + offset, sizeof(value));
    return value;
}

// A count or offset of 64 bits; what does not fit a signed number cannot be right.
std::int64_t field_int64(const std::string& path,
                         const char* name,
                         const unsigned char* header,
                         std::int64_t offset) {
    const auto value = field<std::uint64_t>(header, offset);
    ENSURE(value < (std::uint64_t{1} << 63), "shard.header", path, ": ", name, " = ", value,
           " is over the limit of 2^63 - 1; the header is damaged");
    return static_cast<std::int64_t>(value);
}

std::int64_t align8(std::int64_t offset) {
    return (offset + 7) / 8 * 8;
}

void check_facts(const std::string& path, const ShardHeader& h) {
    ENSURE(h.vocab_size >= 1 && h.vocab_size <= kMaxVocab, "shard.header", path,
           ": vocab_size = ", h.vocab_size, ", allowed 1..", kMaxVocab, "; the header is damaged");
    ENSURE(h.token_bytes == 4 || h.vocab_size <= kMaxVocab16, "shard.header", path,
           ": vocab_size = ", h.vocab_size, " needs 32-bit ids, but token_bytes = 2 holds ",
           kMaxVocab16, "; prepare the data again");
    ENSURE(h.eos_id < h.vocab_size, "shard.header", path, ": eos_id = ", h.eos_id,
           " is not below vocab_size = ", h.vocab_size, "; the header is damaged");
    ENSURE(h.split == Split::train || h.split == Split::validation || h.split == Split::test,
           "shard.header", path, ": split = ", static_cast<std::uint32_t>(h.split),
           ", allowed 0..2; the header is damaged");
}

// The counts and offsets against each other and the file's size, in an order without overflow.
void check_extent(const std::string& path, const ShardHeader& h, std::int64_t size_bytes) {
    const char* fix = "; the file is incomplete or damaged, prepare it again";
    ENSURE(h.tokens_offset == kHeaderBytes, "shard.header", path,
           ": tokens_offset = ", h.tokens_offset, ", version 1 has ", kHeaderBytes,
           "; the header is damaged");
    const std::int64_t token_room = (size_bytes - kHeaderBytes) / h.token_bytes;
    ENSURE(h.num_tokens <= token_room, "shard.size", path, ": the header says ", h.num_tokens,
           " tokens, ", size_bytes, " bytes have room for ", token_room, fix);
    const std::int64_t index_offset = align8(kHeaderBytes + h.num_tokens * h.token_bytes);
    ENSURE(h.index_offset == index_offset, "shard.header", path,
           ": index_offset = ", h.index_offset, ", ", h.num_tokens, " tokens of ", h.token_bytes,
           " bytes put it at ", index_offset, "; the header is damaged");
    const std::int64_t document_room = std::max<std::int64_t>(0, size_bytes - index_offset) / 8;
    ENSURE(h.num_documents <= document_room, "shard.size", path, ": the header says ",
           h.num_documents, " documents, ", size_bytes, " bytes have room for ", document_room,
           fix);
    const std::int64_t expected_bytes = index_offset + 8 * h.num_documents;
    ENSURE(size_bytes == expected_bytes, "shard.size", path, " has ", size_bytes,
           " bytes, its header says ", expected_bytes, fix);
}

// The bytes between tokens and index are zero: others are tokens that the count leaves out.
void check_padding(const MappedFile& file, const ShardHeader& h) {
    const std::int64_t tokens_end = h.tokens_offset + h.num_tokens * h.token_bytes;
    if (tokens_end == h.index_offset) return;
    unsigned char padding[8] = {};
    file.copy(tokens_end, h.index_offset - tokens_end, padding);
    ENSURE(field<std::uint64_t>(padding, 0) == 0, "shard.header", file.path(), ": bytes ",
           tokens_end, "..", h.index_offset - 1, " behind ", h.num_tokens,
           " tokens are not zero; the header is damaged, or the file was not written to its end");
}

ShardHeader parse_own(const MappedFile& file) {
    const std::string& path = file.path();
    ENSURE(file.size_bytes() >= kHeaderBytes, "shard.size", path, " has ", file.size_bytes(),
           " bytes, its header alone needs ", kHeaderBytes,
           "; the file is incomplete, prepare it again");
    unsigned char bytes[96];
    file.copy(0, sizeof(bytes), bytes);
    const auto version = field<std::uint32_t>(bytes, 8);
    ENSURE(version == 1, "shard.version", path, " has format version ", version,
           ", this program reads 1; prepare the data with its tools/prepare_data.py");
    ShardHeader h;
    h.token_bytes = field<std::uint32_t>(bytes, 12);
    ENSURE(h.token_bytes == 2 || h.token_bytes == 4, "shard.header", path,
           ": token_bytes = ", h.token_bytes, ", allowed 2 or 4; the header is damaged");
    h.num_tokens = field_int64(path, "num_tokens", bytes, 16);
    h.num_documents = field_int64(path, "num_documents", bytes, 24);
    h.vocab_size = field<std::uint32_t>(bytes, 32);
    const auto eos_id = field<std::uint32_t>(bytes, 36);
    h.eos_id = eos_id == kNoEos ? -1 : static_cast<std::int64_t>(eos_id);
    h.split = static_cast<Split>(field<std::uint32_t>(bytes, 40));
    h.shard_index = field<std::uint32_t>(bytes, 44);
    h.tokens_offset = field_int64(path, "tokens_offset", bytes, 48);
    h.index_offset = field_int64(path, "index_offset", bytes, 56);
    std::memcpy(h.tokenizer_sha256.data(), bytes + 64, h.tokenizer_sha256.size());
    check_facts(path, h);
    check_extent(path, h, file.size_bytes());
    check_padding(file, h);
    return h;
}

ShardHeader parse_llmc(const MappedFile& file, std::uint32_t magic) {
    const std::string& path = file.path();
    std::uint32_t words[3];
    file.copy(0, sizeof(words), words);
    ShardHeader h;
    h.token_bytes = magic == kLlmcMagic16 ? 2 : 4;
    const std::uint32_t known_version = magic == kLlmcMagic16 ? 1 : 7;
    ENSURE(words[1] == known_version, "shard.version", path, " has magic ", magic, " and version ",
           words[1], ", this program reads version ", known_version, " of it");
    h.num_tokens = static_cast<std::int32_t>(words[2]);
    ENSURE(h.num_tokens >= 0, "shard.header", path, ": token count = ", h.num_tokens,
           ", at least 0 is needed; the header is damaged");
    h.tokens_offset = kLlmcHeaderBytes;
    h.index_offset = 0;
    const std::int64_t expected_bytes = kLlmcHeaderBytes + h.num_tokens * h.token_bytes;
    ENSURE(file.size_bytes() == expected_bytes, "shard.size", path, " has ", file.size_bytes(),
           " bytes, its header says ", h.num_tokens, " tokens, which are ", expected_bytes,
           " bytes; the file is incomplete or damaged, prepare it again");
    return h;
}

ShardHeader parse_header(const MappedFile& file) {
    const std::string& path = file.path();
    ENSURE(file.size_bytes() >= kLlmcHeaderBytes, "shard.size", path, " has ", file.size_bytes(),
           " bytes, the header of a token shard needs ", kHeaderBytes, " (llm.c's ",
           kLlmcHeaderBytes, "); the file is incomplete or no token shard");
    unsigned char magic[kMagicBytes];
    file.copy(0, kMagicBytes, magic);
    if (std::memcmp(magic, kMagic, kMagicBytes) == 0) return parse_own(file);
    const auto word = field<std::uint32_t>(magic, 0);
    if (word == kLlmcMagic16 || word == kLlmcMagic32) return parse_llmc(file, word);
    ENSURE(field<std::uint64_t>(magic, 0) != 0, "shard.magic", path,
           ": its first 8 bytes are zero, a token shard starts with ", kMagic,
           "; it was cut off while it was written, prepare it again");
    fail("shard.magic", path, ": its first bytes are 0x", std::hex, std::setfill('0'), std::setw(8),
         word, std::dec, " (", word, "), a token shard starts with ", kMagic, ", ", kLlmcMagic16,
         " or ", kLlmcMagic32, "; this is no token shard");
}

}  // namespace

const char* name_of(Split split) {
    switch (split) {
        case Split::train:
            return "train";
        case Split::validation:
            return "validation";
        case Split::test:
            return "test";
    }
    return "unknown";
}

TokenShard::TokenShard(const std::string& path) : file_(path), header_(parse_header(file_)) {}

void TokenShard::check_range(std::int64_t begin, std::int64_t count) const {
    ENSURE(begin >= 0 && count >= 0 && begin <= num_tokens() && count <= num_tokens() - begin,
           "shard.index", path(), ": tokens [", begin, ", ", begin, " + ", count,
           ") were asked for, the shard has ", num_tokens());
}

void TokenShard::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    check_range(begin, count);
    const std::int64_t offset = header_.tokens_offset + begin * header_.token_bytes;
    const std::int64_t size_bytes = count * header_.token_bytes;
    if (count == 0) return;
    if (header_.token_bytes == 4) return file_.copy(offset, size_bytes, out);
    file_.read(offset, size_bytes, [=](const unsigned char* at) {
        const auto* ids = reinterpret_cast<const std::uint16_t*>(at);
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = ids[i];
    });
}

std::int64_t TokenShard::max_id(std::int64_t begin, std::int64_t count) const {
    check_range(begin, count);
    const std::int64_t block = kScanBytes / header_.token_bytes;
    std::uint32_t highest = 0;
    const auto scan = [&highest](const auto* ids, std::int64_t n) {
        auto block_highest = ids[0];
        for (std::int64_t i = 0; i < n; ++i)
            block_highest = std::max(block_highest, ids[i]);
        highest = std::max<std::uint32_t>(highest, block_highest);
    };
    for (std::int64_t at = begin; at < begin + count; at += block) {
        const std::int64_t n = std::min(block, begin + count - at);
        file_.read(header_.tokens_offset + at * header_.token_bytes, n * header_.token_bytes,
                   [&](const unsigned char* bytes) {
                       if (header_.token_bytes == 2) {
                           scan(reinterpret_cast<const std::uint16_t*>(bytes), n);
                       } else {
                           scan(reinterpret_cast<const std::uint32_t*>(bytes), n);
                       }
                   });
    }
    return count == 0 ? -1 : static_cast<std::int64_t>(highest);
}

std::int64_t TokenShard::document_start(std::int64_t index) const {
    ENSURE(index >= 0 && index < header_.num_documents, "shard.index", path(), ": document ", index,
           " was asked for, the shard has ", header_.num_documents);
    std::uint64_t start = 0;
    file_.copy(header_.index_offset + 8 * index, 8, &start);
    ENSURE(start < static_cast<std::uint64_t>(num_tokens()), "shard.index", path(), ": document ",
           index, " starts at token ", start, ", the shard has ", num_tokens(),
           "; the document index is damaged, prepare the data again");
    return static_cast<std::int64_t>(start);
}

std::uint64_t TokenShard::fingerprint() const {
    constexpr std::int64_t kBlocks = 64;
    constexpr std::int64_t kBlockTokens = 1024;
    XXH64_state_t state;
    XXH64_reset(&state, static_cast<std::uint64_t>(num_tokens()));
    std::vector<std::int32_t> ids(kBlockTokens);
    const std::int64_t last_begin = std::max<std::int64_t>(0, num_tokens() - kBlockTokens);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
        const std::int64_t begin =
            last_begin / (kBlocks - 1) * i + last_begin % (kBlocks - 1) * i / (kBlocks - 1);
        const std::int64_t count = std::min(kBlockTokens, num_tokens() - begin);
        read(begin, count, ids.data());
        XXH64_update(&state, ids.data(), static_cast<std::size_t>(count) * sizeof(ids[0]));
    }
    return XXH64_digest(&state);
}

bool same_tokens(const TokenShard& a, const TokenShard& b) {
    if (a.num_tokens() != b.num_tokens()) return false;
    if (a.file_id() == b.file_id()) return true;
    if (a.fingerprint() != b.fingerprint()) return false;
    constexpr std::int64_t kBlockTokens = std::int64_t{1} << 16;
    std::vector<std::int32_t> ids_a(kBlockTokens);
    std::vector<std::int32_t> ids_b(kBlockTokens);
    for (std::int64_t begin = 0; begin < a.num_tokens(); begin += kBlockTokens) {
        const std::int64_t count = std::min(kBlockTokens, a.num_tokens() - begin);
        a.read(begin, count, ids_a.data());
        b.read(begin, count, ids_b.data());
        if (!std::equal(ids_a.begin(), ids_a.begin() + count, ids_b.begin())) return false;
    }
    return true;
}

}  // namespace ingot
