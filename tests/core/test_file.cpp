// Goal: files are written whole or not at all, and every failure names the file and the numbers.
// Method: real files in a temporary folder; /dev/full and a file size limit stand for a full disk.
#include <csignal>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "engine/core/file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;

TEST_CASE("file: an atomic file appears under its name with commit() only") {
    const TempFolder folder;
    const std::string path = folder / "a.bin";
    {
        AtomicFile file(path);
        file.write(4, "efgh", 4);
        file.write(0, "abcd", 4);
        CHECK_FALSE(file_exists(path));
        CHECK(file_exists(path + ".partial"));
        file.commit();
        CHECK(read_all(path) == "abcdefgh");
        CHECK_FALSE(file_exists(path + ".partial"));
        CHECK(error_of("file.write", [&] { file.write(0, "x", 1); }) != "");
    }
    {
        AtomicFile file(path);
        file.write(0, "lost", 4);
    }
    CHECK(read_all(path) == "abcdefgh");
    CHECK_FALSE(file_exists(path + ".partial"));
}

TEST_CASE("file: a full disk is named with the path and the bytes that were left") {
    const TempFolder folder;
    const std::string path = folder / "weights.bin";
    std::filesystem::create_symlink("/dev/full", path + ".partial");
    const doctest::String atomic = error_of("file.full", [&] {
        AtomicFile file(path);
        file.write(0, "12345", 5);
    });
    CHECK(atomic == Contains(path.c_str()));
    CHECK(atomic == Contains("No space left on device; 5 bytes"));
    CHECK(atomic == Contains("free there"));

    const doctest::String appended = error_of("file.full", [&] {
        AppendFile file("/dev/full", AppendFile::Open::append);
        file.append("123");
    });
    CHECK(appended == Contains("/dev/full: No space left on device; 3 bytes"));
}

TEST_CASE(
    "file: a write that the system cuts short goes on, and names what is left when it fails") {
    const TempFolder folder;
    const std::string text(150, 'x');
    const doctest::String message = error_of("file.full", [&] {
        const FileSizeLimit limit(100);
        AppendFile file(folder / "lines", AppendFile::Open::create_new);
        file.append(text);  // 100 bytes are taken, 50 are not
    });
    CHECK(message == Contains("lines"));
    CHECK(message == Contains("50 bytes were still to be written"));
    CHECK(read_all(folder / "lines").size() == 100);
}

TEST_CASE("file: reading past the end names the byte where the file ends") {
    const TempFolder folder;
    write_all(folder / "short", "abc");
    const FileReader file(folder / "short");
    CHECK(file.size_bytes() == 3);
    char out[8] = {};
    file.read(1, out, 2);
    CHECK(std::string(out) == "bc");
    CHECK(error_of("file.short", [&] { file.read(1, out, 5); }) ==
          Contains("ends at byte 3, but 3 more were to be read; it had 3 bytes"));
}

TEST_CASE("file: what is no readable file is refused with its path and the reason") {
    const TempFolder folder;
    CHECK(error_of("file.open", [&] { FileReader file(folder / "none"); }) ==
          Contains("none: No such file or directory"));
    CHECK(error_of("file.read", [&] { FileReader file(folder.path()); }) ==
          Contains("is a folder"));
    CHECK(error_of("file.open", [&] { AtomicFile file(folder / "no/such/a"); }) ==
          Contains("no/such/a.partial: No such file"));
    write_all(folder / "big", std::string(11, 'x'));
    CHECK(error_of("file.read", [&] { read_text_file(folder / "big", 10); }) ==
          Contains("has 11 bytes, more than the 10"));
    CHECK(error_of("file.open", [&] {
              AppendFile file(folder / "big", AppendFile::Open::create_new);
          }) == Contains("File exists"));
    write_all(folder / "taken", "x");
    std::filesystem::create_directory(folder / "target");
    write_all(folder / "target/inside", "x");
    CHECK(error_of("file.rename", [&] { write_text_file(folder / "target", "text"); }) ==
          Contains("cannot rename"));
}

TEST_CASE("file: folders are made with their parents, and a file in the way is named") {
    const TempFolder folder;
    make_folders(folder / "a/b//c/");
    make_folders(folder / "a/b/c");
    CHECK(std::filesystem::is_directory(folder / "a/b/c"));
    write_all(folder / "f", "x");
    CHECK(error_of("file.folder", [&] { make_folders(folder / "f/g"); }) ==
          Contains("/f is a file"));
    CHECK(free_disk_bytes(folder.path()) > 0);
    CHECK(free_disk_bytes(folder / "a/not-there") > 0);
}
