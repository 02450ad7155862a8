// The one place that prints. Lines of rank 0 go to the console; lines of every rank go to the
// rank's log file, with the UTC time and a level in front. Errors: file.*.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>

#include "engine/core/file.h"

namespace ingot {

class Log {
  public:
    // `console` is not owned; nullptr prints nothing (tests, library use).
    explicit Log(int rank = 0, std::FILE* console = nullptr) : rank_(rank), console_(console) {}
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    // Opens (appends to) the rank's log file. Lines of before, kept until now, come first.
    void open_file(const std::string& path);

    void info(const std::string& text);     // rank 0: console; all: file
    void warning(const std::string& text);  // "warning: ..." on the console of every rank; file
    void detail(const std::string& text);   // file only
    // Text as it is (samples, tables), without a line end of its own. The console shows it at once,
    // the file gets whole lines: when their end comes, or with the next call or the end of the log.
    void raw(const std::string& text);

    int rank() const { return rank_; }
    bool console_is_terminal() const;
    int console_columns() const;  // of the terminal; 0 when it is none
    const std::string& file_path() const { return file_.path(); }

  private:
    void to_console(const std::string& text);
    void to_file(const char* level, const std::string& text);

    int rank_;
    std::FILE* console_;
    AppendFile file_;
    std::string early_lines_;  // for the file, until it is open
    std::string raw_rest_;     // of raw(), behind the last line end
    std::mutex mutex_;
};

}  // namespace ingot
