#include "tests/support/source_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "engine/core/check.h"

namespace ingot::test {
namespace {

enum class State { code, line_comment, block_comment, string, character, raw_string };

// Walks over the text one character at a time and says to which state each one belongs.
class Scanner {
  public:
    explicit Scanner(const std::string& text) : text_(text) {}

    // The state of the character at `i`; call with i = 0, 1, 2, ...
    State state_of(std::size_t i) {
        if (i < until_) return covering_;
        switch (state_) {
            case State::code:
                return open(i);
            case State::line_comment:
                if (text_[i] == '\n') state_ = State::code;
                return text_[i] == '\n' ? State::code : State::line_comment;
            case State::block_comment:
                if (text_.compare(i, 2, "*/") == 0) return cover(i, 2, State::code, State::code);
                return State::block_comment;
            case State::raw_string:
                if (text_.compare(i, raw_end_.size(), raw_end_) == 0) {
                    return cover(i, raw_end_.size(), State::code, State::code);
                }
                return State::raw_string;
            default:
                return in_quotes(i);
        }
    }

  private:
    // `count` characters from i belong to `covering`; afterwards the state is `next`.
    State cover(std::size_t i, std::size_t count, State covering, State next) {
        until_ = i + count;
        covering_ = covering;
        state_ = next;
        return covering;
    }

    State open(std::size_t i) {
        if (text_.compare(i, 2, "//") == 0) return cover(i, 2, State::code, State::line_comment);
        if (text_.compare(i, 2, "/*") == 0) return cover(i, 2, State::code, State::block_comment);
        if (text_.compare(i, 2, "R\"") == 0) {
            const std::size_t bracket = text_.find('(', i);
            if (bracket == std::string::npos) return State::code;
            raw_end_ = str(')', text_.substr(i + 2, bracket - i - 2), '"');
            return cover(i, bracket - i + 1, State::code, State::raw_string);
        }
        const bool is_digit_separator =
            i > 0 && std::isalnum(static_cast<unsigned char>(text_[i - 1])) != 0;
        if (text_[i] == '"') state_ = State::string;
        if (text_[i] == '\'' && !is_digit_separator) state_ = State::character;
        return State::code;
    }

    State in_quotes(std::size_t i) {
        const State inside = state_;
        if (text_[i] == '\\') return cover(i, 2, inside, inside);
        const char quote = inside == State::string ? '"' : '\'';
        if (text_[i] == quote || text_[i] == '\n') {
            state_ = State::code;
            return State::code;
        }
        return inside;
    }

    const std::string& text_;
    State state_ = State::code;
    State covering_ = State::code;
    std::size_t until_ = 0;
    std::string raw_end_;
};

}  // namespace

SourceLines split_source(const std::string& text) {
    SourceLines lines;
    std::string raw, code, comment;
    Scanner scanner(text);
    const auto end_line = [&] {
        lines.raw.push_back(std::exchange(raw, ""));
        lines.code.push_back(std::exchange(code, ""));
        lines.comments.push_back(std::exchange(comment, ""));
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const State state = scanner.state_of(i);
        if (text[i] == '\n') {
            end_line();
            continue;
        }
        const bool is_comment = state == State::line_comment || state == State::block_comment;
        raw += text[i];
        code += state == State::code ? text[i] : ' ';
        comment += is_comment ? text[i] : ' ';
    }
    if (!raw.empty()) end_line();
    // The marks of a comment belong to neither.
    for (std::size_t i = 0; i < lines.code.size(); ++i) {
        for (const char* mark : {"//", "/*", "*/"}) {
            for (std::size_t at = lines.code[i].find(mark); at != std::string::npos;
                 at = lines.code[i].find(mark)) {
                lines.code[i].replace(at, 2, "  ");
            }
        }
    }
    return lines;
}

std::vector<SourceFile> read_sources(const std::string& root) {
    namespace fs = std::filesystem;
    static constexpr const char* kFolders[] = {"engine", "kernels", "comm",  "data",
                                               "model",  "tools",   "tests", "bench"};
    static constexpr const char* kSuffixes[] = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"};
    std::vector<SourceFile> files;
    for (const char* folder : kFolders) {
        if (!fs::exists(fs::path(root) / folder)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
            const std::string suffix = entry.path().extension().string();
            if (std::find(std::begin(kSuffixes), std::end(kSuffixes), suffix) ==
                std::end(kSuffixes)) {
                continue;
            }
            std::ifstream stream(entry.path(), std::ios::binary);
            std::ostringstream text;
            text << stream.rdbuf();
            files.push_back({fs::relative(entry.path(), root).generic_string(), text.str()});
        }
    }
    std::sort(files.begin(), files.end(),
              [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return files;
}

}  // namespace ingot::test
