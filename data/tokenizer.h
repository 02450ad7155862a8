// From token ids back to text, for samples on the console. Reads a Hugging Face tokenizer.json with
// a byte-level decoder (GPT-2, Llama 3, Qwen and the tokenizers of tools/prepare_data.py), or a
// SentencePiece-style one ("\u2581" for a space, <0xE5> for a byte; Llama 2, Mistral). Tokenizing
// is the business of tools/prepare_data.py.
// Errors: tokenizer.open, tokenizer.json, tokenizer.decoder, tokenizer.id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/sha256.h"

namespace ingot {

class TokenDecoder {
  public:
    explicit TokenDecoder(const std::string& tokenizer_json_path);

    // Highest id + 1, added tokens included. An id below it that has no token has no bytes.
    std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes_.size()); }
    const Sha256Digest& file_sha256() const { return file_sha256_; }
    // The bytes of one token; part of a character perhaps. Valid while the decoder lives.
    std::string_view bytes(std::int64_t id) const;
    // The text of ids that start a text; bytes that are not UTF-8 become U+FFFD.
    std::string decode(const std::vector<std::int32_t>& ids) const;

  private:
    void set_token(std::int64_t id, const std::string& token, const std::string& path);

    std::vector<std::string> bytes_;   // by id
    std::size_t stripped_spaces_ = 0;  // at the start of a text
    Sha256Digest file_sha256_{};
};

// Turns pieces of bytes into pieces of valid UTF-8: holds back the start of a character until its
// other bytes come.
class Utf8Stream {
  public:
    // What is complete of everything pushed so far and not returned yet.
    std::string push(std::string_view bytes);
    // The end of the text: U+FFFD for an unfinished character, otherwise nothing.
    std::string finish();

  private:
    std::string pending_;  // the first 1 to 3 bytes of a character
};

}  // namespace ingot
