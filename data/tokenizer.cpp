#include "data/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxId = std::int64_t{1} << 24;  // of any vocabulary in use, with room
constexpr char kReplacement[] = "\xEF\xBF\xBD";         // U+FFFD

std::string encode_utf8(std::uint32_t code_point) {
    if (code_point < 0x80) return {static_cast<char>(code_point)};
    return {static_cast<char>(0xC0 | (code_point >> 6)),
            static_cast<char>(0x80 | (code_point & 0x3F))};  // the alphabet ends at U+0143
}

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100, U+0101,
// ... in their order.
std::unordered_map<std::string, char> byte_of_character() {
    std::unordered_map<std::string, char> alphabet;
    std::uint32_t next_other = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                               (byte >= 0xAE && byte <= 0xFF);
        alphabet[encode_utf8(printable ? byte : next_other++)] = static_cast<char>(byte);
    }
    return alphabet;
}

// Length of the character that starts with `lead`, 0 when none does.
std::size_t utf8_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// Whether `byte` may be byte `index` >= 1 of a character with this lead: no overlong forms, no
// surrogates, nothing past U+10FFFF.
bool continues(unsigned char lead, std::size_t index, unsigned char byte) {
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (index == 1) {
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    }
    return byte >= low && byte <= high;
}

std::string from_byte_level(const std::string& token,
                            const std::unordered_map<std::string, char>& alphabet) {
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
        const std::size_t length =
            std::max<std::size_t>(1, utf8_length(static_cast<unsigned char>(token[at])));
        const auto found = alphabet.find(token.substr(at, length));
        if (found == alphabet.end()) return token;  // not of the alphabet: plain text
        bytes += found->second;
        at += length;
    }
    return bytes;
}

// "<0xE5>" is byte 0xE5; U+2581 is a space.
std::string from_sentence_piece(const std::string& token) {
    if (token.size() == 6 && token.compare(0, 3, "<0x") == 0 && token[5] == '>' &&
        std::isxdigit(static_cast<unsigned char>(token[3])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(token[4])) != 0) {
        return {static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16))};
    }
    static constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
        const bool is_space = token.compare(at, kSpace.size(), kSpace) == 0;
        bytes += is_space ? ' ' : token[at];
        at += is_space ? kSpace.size() : 1;
    }
    return bytes;
}

// The types of the decoder and of its parts, e.g. "Sequence Replace ByteFallback Fuse Strip".
std::string decoder_types(const Json& decoder) {
    if (!decoder.is_object()) return "null";
    std::string types = decoder.value("type", "");
    if (types == "Sequence") {
        for (const Json& part : decoder.value("decoders", Json::array()))
            types.append(" ").append(decoder_types(part));
    }
    return types;
}

// How many spaces a decoder takes from the start of a text: SentencePiece puts one there.
std::size_t stripped_spaces(const Json& decoder) {
    if (!decoder.is_object()) return 0;
    std::size_t count = 0;
    if (decoder.value("type", "") == "Strip" && decoder.value("content", "") == " ") {
        count += decoder.value("start", std::size_t{0});
    }
    for (const Json& part : decoder.value("decoders", Json::array()))
        count += stripped_spaces(part);
    return count;
}

bool contains(const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
}

}  // namespace

TokenDecoder::TokenDecoder(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ENSURE(file, "tokenizer.open", path, ": cannot open: ", std::strerror(errno));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    file_sha256_ = sha256(text.data(), text.size());
    try {
        const Json json = Json::parse(text);
        const Json& vocab = json.at("model").at("vocab");
        if (vocab.is_array()) {  // Unigram: pairs of token and score, the id is the place
            for (const Json& entry : vocab)
                set_token(vocab_size(), entry.at(0), path);
        } else {
            for (const auto& [token, id] : vocab.items())
                set_token(id, token, path);
        }
        const Json decoder = json.value("decoder", Json());
        const std::string types = decoder_types(decoder);
        stripped_spaces_ = stripped_spaces(decoder);
        const bool byte_level = contains(types, "ByteLevel");
        ENSURE(byte_level || contains(types, "ByteFallback") || contains(types, "Metaspace"),
               "tokenizer.decoder", path, ": decoder ", types,
               " is not known; ByteLevel, ByteFallback and Metaspace are");
        const auto alphabet = byte_of_character();
        for (std::string& token : bytes_)
            token = byte_level ? from_byte_level(token, alphabet) : from_sentence_piece(token);
        // Added tokens stand for their text as it is.
        for (const Json& token : json.value("added_tokens", Json::array()))
            set_token(token.at("id"), token.at("content"), path);
    } catch (const Json::exception& error) {
        fail("tokenizer.json", path, " is not a tokenizer.json: ", error.what());
    }
}

void TokenDecoder::set_token(std::int64_t id, const std::string& token, const std::string& path) {
    ENSURE(id >= 0 && id < kMaxId, "tokenizer.json", path, ": token ", token, " has id ", id,
           ", allowed 0..", kMaxId - 1);
    if (id >= vocab_size()) bytes_.resize(static_cast<std::size_t>(id) + 1);
    bytes_[static_cast<std::size_t>(id)] = token;
}

std::string_view TokenDecoder::bytes(std::int64_t id) const {
    ENSURE(id >= 0 && id < vocab_size(), "tokenizer.id", "tokenizer: id ", id,
           " has no token, the vocabulary has ", vocab_size(), " ids");
    return bytes_[static_cast<std::size_t>(id)];
}

std::string TokenDecoder::decode(const std::vector<std::int32_t>& ids) const {
    Utf8Stream stream;
    std::string text;
    for (const std::int32_t id : ids)
        text += stream.push(bytes(id));
    text += stream.finish();
    const std::size_t spaces = std::min(text.find_first_not_of(' '), text.size());
    return text.substr(std::min(spaces, stripped_spaces_));
}

// Invalid bytes are replaced as Unicode recommends (and Python and Rust do): one U+FFFD for the
// longest start of a character.
std::string Utf8Stream::push(std::string_view bytes) {
    pending_ += bytes;
    std::string complete;
    std::size_t at = 0;
    while (at < pending_.size()) {
        const auto lead = static_cast<unsigned char>(pending_[at]);
        const std::size_t length = utf8_length(lead);
        std::size_t have = 1;
        while (have < length && at + have < pending_.size() &&
               continues(lead, have, static_cast<unsigned char>(pending_[at + have]))) {
            ++have;
        }
        if (have == length) {
            complete.append(pending_, at, length);
        } else if (length > 0 && at + have == pending_.size()) {
            break;  // the rest may still come
        } else {
            complete += kReplacement;
        }
        at += have;
    }
    pending_.erase(0, at);
    return complete;
}

std::string Utf8Stream::finish() {
    const bool unfinished = !pending_.empty();
    pending_.clear();
    return unfinished ? kReplacement : "";
}

}  // namespace ingot
