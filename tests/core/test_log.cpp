// Goal: rank 0 speaks on the console, every rank in its file. Method: a temporary file as console.
#include <cctype>
#include <cstdio>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include "engine/core/log.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

// What a rank's calls print on its console.
std::string console_of(int rank, const std::string& log_path) {
    const TempFolder folder;
    std::FILE* console = std::fopen((folder / "console").c_str(), "w");
    Log log(rank, console);
    log.open_file(log_path);
    log.info("step 1");
    log.warning("slow");
    log.detail("only in the file");
    log.raw("a\nb");
    CHECK_FALSE(log.console_is_terminal());
    CHECK(log.console_columns() == 0);
    std::fclose(console);
    return read_all(folder / "console");
}

// The lines without their UTC time, which must look like 2026-12-01T22:48:01.123Z.
std::vector<std::string> lines_after_time(const std::string& path) {
    const std::string form = "dddd-dd-ddTdd:dd:dd.dddZ ";
    std::vector<std::string> rests;
    std::istringstream text(read_all(path));
    for (std::string line; std::getline(text, line);) {
        std::string time = line.substr(0, form.size());
        for (char& c : time)
            c = std::isdigit(static_cast<unsigned char>(c)) != 0 ? 'd' : c;
        CHECK(time == form);
        rests.push_back(line.substr(time.size()));
    }
    return rests;
}

}  // namespace

TEST_CASE(
    "log: rank 0 prints everything but details, other ranks print warnings with their number") {
    const TempFolder folder;
    CHECK(console_of(0, folder / "0") == "step 1\nwarning: slow\na\nb");
    CHECK(console_of(3, folder / "3") == "warning (rank 3): slow\n");
}

TEST_CASE("log: the file of a rank has every line with UTC time and level, and is appended to") {
    const TempFolder folder;
    const std::string path = folder / "rank";
    console_of(3, path);
    const std::vector<std::string> once = {"info step 1", "warning slow", "detail only in the file",
                                           "raw a", "raw b"};
    CHECK(lines_after_time(path) == once);
    console_of(3, path);
    std::vector<std::string> expected = once;
    expected.insert(expected.end(), once.begin(), once.end());
    CHECK(lines_after_time(path) == expected);
}

TEST_CASE("log: text that comes in pieces is whole lines in the file, in the order of the calls") {
    const TempFolder folder;
    const std::string path = folder / "rank";
    {
        Log log;
        log.open_file(path);
        for (const char* piece : {"on", "ce\nup", "on", "\n", "a"})
            log.raw(piece);
        log.info("step 2");
        log.raw("\n\ntime");
    }
    CHECK(lines_after_time(path) == std::vector<std::string>{"raw once", "raw upon", "raw a",
                                                             "info step 2", "raw ", "raw ",
                                                             "raw time"});
}

TEST_CASE("log: what was said before the file is open comes first in it, once") {
    const TempFolder folder;
    const std::string path = folder / "rank";
    Log log;
    log.info("train.steps = auto: 5");
    log.warning("slow");
    log.raw("a\nb");
    log.open_file(path);
    log.info("step 1");
    log.open_file(path);
    CHECK(lines_after_time(path) == std::vector<std::string>{"info train.steps = auto: 5",
                                                             "warning slow", "raw a", "raw b",
                                                             "info step 1"});
}

TEST_CASE("log: without a console and a file nothing happens") {
    Log log;
    log.info("x");
    log.warning("y");
    CHECK(log.file_path().empty());
}
