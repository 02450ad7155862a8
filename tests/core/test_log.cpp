// Goal: rank 0 speaks on the console, every rank in its file. Method: a temporary file as console.
#include <cstdio>
#include <regex>

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
    const std::string time = "2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-9:]{8}\\.[0-9]{3}Z";
    const std::string expected = time + " info step 1\n" + time + " warning slow\n" + time +
                                 " detail only in the file\n" + time + " raw a\n" + time +
                                 " raw b\n";
    CHECK(std::regex_match(read_all(path), std::regex(expected)));
    console_of(3, path);
    CHECK(std::regex_match(read_all(path), std::regex(expected + expected)));
}

TEST_CASE("log: without a console and a file nothing happens") {
    Log log;
    log.info("x");
    log.warning("y");
    CHECK(log.file_path().empty());
}
