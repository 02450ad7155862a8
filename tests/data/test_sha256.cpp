// Goal: SHA-256 as in FIPS 180-4. Method: its known answers, and every length around the padding's
// borders against Python's hashlib.
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "data/sha256.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("sha256: known answers") {
    const auto digest = [](const std::string& text) {
        return hex_string(sha256(text.data(), text.size()));
    };
    CHECK(digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(digest(std::string(1000000, 'a')) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: all lengths from 0 to 200 agree with hashlib") {
    // The digest of all 201 digests of 'x' * n, one behind the other.
    std::string digests;
    for (std::size_t length = 0; length <= 200; ++length) {
        const std::string text(length, 'x');
        const Sha256Digest digest = sha256(text.data(), text.size());
        digests.append(digest.begin(), digest.end());
    }
    CHECK(hex_string(sha256(digests.data(), digests.size())) ==
          "2e9fcf76499976b60177466c31b8ab5caa7d4c6dd8dd97c8ce7b574af689ec94");
}

TEST_CASE("sha256: of a file; a missing one is named") {
    const TempFolder folder;
    std::ofstream(folder / "x", std::ios::binary) << "abc";
    CHECK(hex_string(sha256_of_file(folder / "x")).substr(0, 8) == "ba7816bf");
    CHECK(contains(error_of([&] { sha256_of_file(folder / "y"); }), "y: cannot open: No such"));
}
