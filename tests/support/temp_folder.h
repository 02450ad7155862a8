// A folder for one test, removed with everything in it at the end of the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "engine/core/check.h"

namespace ingot::test {

class TempFolder {
  public:
    TempFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
        ENSURE(::mkdtemp(name.data()) != nullptr, "test.temp_folder", "cannot make ", name);
        path_ = name;
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    // The folder, or a path in it.
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

inline std::string read_all(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ENSURE(file.good(), "test.read", "cannot open ", path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

inline void write_all(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    ENSURE(file.good(), "test.write", "cannot write ", path);
}

// The message that f() throws as an Error of this code; "" when it throws none, and a text that
// says so when the code is another. A doctest::String, for doctest::Contains.
template <class F>
doctest::String error_of(const char* code, F&& f) {
    try {
        f();
    } catch (const Error& error) {
        if (std::string(error.code()) == code) return error.what();
        return str("code is ", error.code(), ", wanted ", code, ": ", error.what()).c_str();
    }
    return "";
}

}  // namespace ingot::test
