#include "engine/core/log.h"

#include <algorithm>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include "engine/core/check.h"
#include "engine/core/host.h"

namespace ingot {
namespace {

// Every line of the text with time and level in front.
std::string with_prefix(const char* level, const std::string& text) {
    const std::string prefix = str(utc_now(), ' ', level, ' ');
    std::string lines;
    std::size_t begin = 0;
    do {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines += prefix + text.substr(begin, end - begin) + "\n";
        begin = end + 1;
    } while (begin < text.size());
    return lines;
}

}  // namespace

Log::~Log() {
    if (raw_rest_.empty()) return;
    try {
        to_file("raw", std::exchange(raw_rest_, ""));
    } catch (const Error&) {
        return;  // What cannot be written is on the console.
    }
}

void Log::open_file(const std::string& path) {
    const std::lock_guard<std::mutex> guard(mutex_);
    file_ = AppendFile(path, AppendFile::Open::append);
    const std::string lines = std::exchange(early_lines_, "");
    if (!lines.empty()) file_.append(lines);
}

void Log::info(const std::string& text) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (rank_ == 0) to_console(text + "\n");
    to_file("info", text);
}

void Log::warning(const std::string& text) {
    const std::lock_guard<std::mutex> guard(mutex_);
    to_console((rank_ == 0 ? str("warning: ") : str("warning (rank ", rank_, "): ")) + text + "\n");
    to_file("warning", text);
}

void Log::detail(const std::string& text) {
    const std::lock_guard<std::mutex> guard(mutex_);
    to_file("detail", text);
}

void Log::raw(const std::string& text) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (rank_ == 0) to_console(text);
    const std::string all = std::exchange(raw_rest_, "") + text;
    const std::size_t lines_end = all.rfind('\n') + 1;  // 0 when there is no line end
    if (lines_end > 0) to_file("raw", all.substr(0, lines_end));
    raw_rest_ = all.substr(lines_end);
}

bool Log::console_is_terminal() const {
    return console_ != nullptr && ::isatty(::fileno(console_)) == 1;
}

int Log::console_columns() const {
    winsize size{};
    if (!console_is_terminal() || ::ioctl(::fileno(console_), TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}

// A console that went away (a closed pipe, a full disk behind a redirection) does not end a run:
// the same lines are in the log file.
void Log::to_console(const std::string& text) {
    if (console_ == nullptr) return;
    std::fwrite(text.data(), 1, text.size(), console_);
    std::fflush(console_);
}

void Log::to_file(const char* level, const std::string& text) {
    const std::string rest = std::exchange(raw_rest_, "");
    const std::string lines =
        (rest.empty() ? "" : with_prefix("raw", rest)) + with_prefix(level, text);
    if (file_.is_open()) {
        file_.append(lines);
    } else {
        early_lines_ += lines;
    }
}

}  // namespace ingot
