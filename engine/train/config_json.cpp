#include "engine/train/config_json.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

int line_of(const std::string& text, std::size_t byte) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
    return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

bool is_word_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The fix for the usual slips, read off the text where the parser stopped.
std::string hint(const std::string& text, std::size_t byte) {
    const std::size_t at = std::min(byte == 0 ? 0 : byte - 1, text.size());
    std::size_t begin = at;
    while (begin > 0 && is_word_letter(text[begin - 1]))
        --begin;
    std::size_t end = at;
    while (end < text.size() && is_word_letter(text[end]))
        ++end;
    const std::string word = text.substr(begin, end - begin);
    if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf" || word == "Inf") {
        return str("; ", word, " is no JSON number and no key takes it");
    }
    if (word == "True" || word == "False") return "; write true or false in small letters";
    if (at < text.size() && text[at] == '\'') return "; use double quotes";
    if (at < text.size() && text[at] == '/') return "; JSON has no comments";
    if (at < text.size() && (text[at] == '}' || text[at] == ']')) {
        return "; is there a comma too many before it?";
    }
    return "";
}

std::string escape(const std::string& key) {  // RFC 6901
    std::string out;
    for (const char c : key) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

// Index of the quote that ends the string which begins at `begin`.
std::size_t end_of_string(const std::string& text, std::size_t begin) {
    std::size_t i = begin + 1;
    while (text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i;
}

}  // namespace

Json parse_json(const std::string& text, const std::string& path) {
    try {
        return Json::parse(text);
    } catch (const Json::parse_error& error) {
        // nlohmann's text is "[json.exception.parse_error.101] parse error at line 1, column 2:
        // ...".
        const std::string what = error.what();
        const std::size_t begin = what.find(": ");
        fail("config.json", "config: ", path, ":", line_of(text, error.byte),
             ": not valid JSON: ", begin == std::string::npos ? what : what.substr(begin + 2),
             hint(text, error.byte));
    } catch (const Json::exception& error) {  // a number beyond the range of a double
        const std::string what = error.what();
        const std::size_t begin = what.find("] ");
        fail("config.json", "config: ", path, ": ",
             begin == std::string::npos ? what : what.substr(begin + 2));
    }
}

JsonPlaces::JsonPlaces(const std::string& text, const std::string& path) : path_(path) {
    struct Container {
        std::string pointer;
        bool is_object;
        bool wants_key;
    };
    std::vector<Container> stack;
    std::string pointer;  // of the value that comes next
    int line = 1;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n') {
            ++line;
        } else if (c == '{' || c == '[') {
            stack.push_back({pointer, c == '{', c == '{'});
            if (c == '[') pointer = str(stack.back().pointer, "/0");
        } else if (c == '}' || c == ']') {
            pointer = stack.back().pointer;
            stack.pop_back();
        } else if (c == ',') {
            Container& top = stack.back();
            top.wants_key = top.is_object;
            // Elements of an array need not be told apart by number, only by place.
            if (!top.is_object) pointer = str(top.pointer, "/", i);
        } else if (c == '"') {
            const std::size_t end = end_of_string(text, i);
            if (!stack.empty() && stack.back().wants_key) {
                const std::string key = Json::parse(text.substr(i, end + 1 - i)).get<std::string>();
                pointer = str(stack.back().pointer, "/", escape(key));
                stack.back().wants_key = false;
                const auto [found, is_new] = line_by_pointer_.emplace(pointer, line);
                ENSURE(is_new, "config.duplicate_key", "config: ", path, ":", line, ": key \"", key,
                       "\" was already given in line ", found->second, "; remove one of them");
            }
            i = end;
        }
    }
}

std::string JsonPlaces::of(const std::string& section, const std::string& key) const {
    const std::string prefix = section.empty() ? std::string() : str("/", escape(section));
    const std::string pointer = str(prefix, "/", escape(key));
    const auto found = line_by_pointer_.find(pointer);
    return found == line_by_pointer_.end() ? path_ : str(path_, ":", found->second);
}

}  // namespace ingot
