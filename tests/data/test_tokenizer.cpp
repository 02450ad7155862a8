// Goal: ids become the text that the Hugging Face library decodes, whole characters while
// streaming. Method: the shared tokenizer cases with that library's results; every split of a text
// with characters of 1 to 4 bytes; invalid UTF-8 as Python replaces it.
#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/tokenizer.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

nlohmann::json read_json(const std::string& path) {
    std::ifstream file(path);
    REQUIRE(file);
    return nlohmann::json::parse(file);
}

std::string error_of_json(const std::string& text) {
    const TempFolder folder;
    std::ofstream(folder / "tokenizer.json") << text;
    return error_of([&] { TokenDecoder decoder(folder / "tokenizer.json"); });
}

}  // namespace

TEST_CASE("tokenizer: decodes as the Hugging Face library, byte-level and byte-fallback") {
    int compared = 0;
    for (const char* folder :
         {"B04_tok_pretok", "B05_tok_byte_fallback", "B08_tok_added", "B14_tok_vocab_size"}) {
        const std::string base = case_file(folder) + "/";
        const nlohmann::json cases = read_json(base + "expected.json").at("cases");
        for (const auto& expected : cases) {
            const std::string file = expected.at("file");
            const TokenDecoder decoder(base + file);
            const auto& ids = expected.contains("ids") ? expected["ids"] : expected["decode_ids"];
            if (!ids.is_array() || !expected.at("decoded").is_string()) continue;
            CAPTURE(file);
            CAPTURE(ids.dump());
            CHECK(decoder.decode(ids.get<std::vector<std::int32_t>>()) ==
                  expected["decoded"].get<std::string>());
            ++compared;
        }
    }
    CHECK(compared > 40);
}

TEST_CASE("tokenizer: the vocabulary's size counts added tokens") {
    const TokenDecoder decoder(case_file("B14_tok_vocab_size/specials.json"));
    CHECK(decoder.vocab_size() == 283);
    CHECK(decoder.bytes(282) == "<|im_end|>");
    CHECK(contains(error_of([&] { decoder.bytes(283); }), "id 283 has no token"));
    CHECK(contains(error_of([&] { decoder.bytes(-1); }), "the vocabulary has 283 ids"));
    CHECK(decoder.file_sha256() == sha256_of_file(case_file("B14_tok_vocab_size/specials.json")));
}

TEST_CASE("tokenizer: the 256 bytes of a byte-level tokenizer are the 256 bytes") {
    const TokenDecoder decoder(case_file("B14_tok_vocab_size/specials.json"));
    std::vector<bool> seen(256, false);
    for (std::int64_t id = 0; id < 256; ++id) {
        REQUIRE(decoder.bytes(id).size() == 1);
        seen[static_cast<unsigned char>(decoder.bytes(id)[0])] = true;
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == 256);
    CHECK(decoder.bytes(0) == "!");
    CHECK(decoder.bytes(220) == " ");
}

TEST_CASE("tokenizer: files that are no tokenizer are refused with the reason") {
    CHECK(contains(error_of([] { TokenDecoder decoder("/nonexistent/tokenizer.json"); }),
                   "tokenizer.open: /nonexistent/tokenizer.json: cannot open"));
    CHECK(contains(error_of_json("{\"model\": "), "tokenizer.json: "));
    CHECK(contains(error_of_json("{}"), "is not a tokenizer.json"));
    CHECK(contains(error_of_json(R"({"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}})"),
                   "tokenizer.decoder: "));
    CHECK(contains(error_of_json(R"({"model": {"vocab": {"a": 0}}, "decoder": null})"),
                   "decoder null is not known; ByteLevel"));
    CHECK(contains(error_of_json(R"({"model": {"vocab": {"a": 16777216}},
                                     "decoder": {"type": "ByteLevel"}})"),
                   "has id 16777216, allowed 0..16777215"));
    CHECK(contains(error_of_json(R"({"model": {"vocab": {"a": "b"}},
                                     "decoder": {"type": "ByteLevel"}})"),
                   "is not a tokenizer.json"));
}

TEST_CASE("utf8 stream: pieces are valid UTF-8 and add up to the text, however it is cut") {
    const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // a e-acute euro emoji z
    for (std::size_t first = 0; first <= text.size(); ++first) {
        for (std::size_t second = first; second <= text.size(); ++second) {
            Utf8Stream stream;
            std::string joined;
            for (const std::string& piece :
                 {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
                const std::string out = stream.push(piece);
                // Whole characters only: nothing is replaced and no piece starts in a character.
                CHECK_FALSE(contains(out, "\xEF\xBF\xBD"));
                CHECK((out.empty() || (static_cast<unsigned char>(out[0]) & 0xC0) != 0x80));
                joined += out;
            }
            CHECK(joined + stream.finish() == text);
        }
    }
}

TEST_CASE("utf8 stream: invalid bytes are replaced like Python's errors='replace'") {
    const std::string R = "\xEF\xBF\xBD";
    const std::pair<std::string, std::string> cases[] = {
        {"a\xFFz", "a" + R + "z"},
        {"\x80", R},
        {"\xC3", R},
        {"\xC3\x28", R + "("},
        {"\xC0\xAF", R + R},          // overlong
        {"\xE0\x80\xAF", R + R + R},  // overlong
        {"\xED\xA0\x80", R + R + R},  // a surrogate
        {"\xF0\x9F\x98", R},          // unfinished
        {"\xF0\x9F\x98z", R + "z"},
        {"\xF4\x90\x80\x80", R + R + R + R},  // past U+10FFFF
        {"\xE2\x82\xE2\x82\xAC", R + "\xE2\x82\xAC"},
    };
    for (const auto& [bytes, expected] : cases) {
        Utf8Stream at_once;
        std::string text = at_once.push(bytes);
        text += at_once.finish();
        CHECK(text == expected);
        Utf8Stream byte_by_byte;
        text.clear();
        for (const char byte : bytes)
            text += byte_by_byte.push(std::string_view(&byte, 1));
        text += byte_by_byte.finish();
        CHECK(text == expected);
    }
    Utf8Stream stream;
    CHECK(stream.push("\xF0\x9F").empty());
    CHECK(stream.finish() == R);
    CHECK(stream.finish().empty());
}
