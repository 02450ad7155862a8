// Goal: a shard is read exactly as it was written, in 64 bits, and a file that is not what its
// header says is refused with both numbers. Method: written and hand-damaged files, the shared bad
// files, a sparse file over 4 GiB, files truncated while mapped.
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "data/token_shard.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

void overwrite(const std::string& path, std::int64_t offset, const void* bytes, std::size_t count) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    REQUIRE(file);
}

// The error of opening a 40-token shard with `value` written over its header.
template <class T>
std::string error_with(std::int64_t offset, T value) {
    const TempFolder folder;
    const std::string path = folder / "x.bin";
    write_token_shard(path, shard_facts(1000), counting_ids(40), {0, 20});
    overwrite(path, offset, &value, sizeof(value));
    return error_of([&] { TokenShard shard(path); });
}

}  // namespace

TEST_CASE("token shard: tokens, header and document index come back as written, 16 and 32 bits") {
    const TempFolder folder;
    for (const std::int64_t vocab_size : {std::int64_t{65536}, std::int64_t{151936}}) {
        std::vector<std::int64_t> ids = random_ids(1001, vocab_size, 5);
        ids[500] = vocab_size - 1;
        ShardHeader facts = shard_facts(vocab_size);
        facts.eos_id = 17;
        facts.split = Split::validation;
        facts.shard_index = 3;
        write_token_shard(folder / "x.bin", facts, ids, {0, 400, 1000});

        const TokenShard shard(folder / "x.bin");
        CHECK(read_all(shard) == ids);
        CHECK(shard.header().token_bytes == (vocab_size == 65536 ? 2 : 4));
        CHECK(shard.header().vocab_size == vocab_size);
        CHECK(shard.header().eos_id == 17);
        CHECK(shard.header().split == Split::validation);
        CHECK(shard.header().shard_index == 3);
        CHECK(shard.header().tokenizer_sha256 == facts.tokenizer_sha256);
        CHECK(shard.header().num_documents == 3);
        CHECK(shard.document_start(1) == 400);
        CHECK(shard.document_start(2) == 1000);
        CHECK(shard.max_id(0, 1001) == vocab_size - 1);
        CHECK(shard.max_id(500, 1) == vocab_size - 1);
        CHECK(shard.max_id(501, 0) == -1);
    }
}

TEST_CASE("token shard: the highest id is found at any place, also across the scan's blocks") {
    const TempFolder folder;
    const std::int64_t count = (std::int64_t{1} << 19) + 777;  // 16 bits: one block and a rest
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count), 1);
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
        ids[static_cast<std::size_t>(at)] = 999;
        write_token_shard(folder / "x.bin", shard_facts(1000), ids);
        const TokenShard shard(folder / "x.bin");
        CHECK(shard.max_id(0, count) == 999);
        CHECK(shard.max_id(0, at) == (at == 0 ? -1 : 1));
        ids[static_cast<std::size_t>(at)] = 1;
    }
}

TEST_CASE("token shard: a shard written by tools/prepare_data.py is read") {
    const TokenShard shard(case_file("shard_from_python/val_001.bin"));
    CHECK(read_all(shard) == std::vector<std::int64_t>{70000, 65535, 65536, 9, 1, 2, 9});
    CHECK(shard.header().token_bytes == 4);
    CHECK(shard.header().vocab_size == 70001);
    CHECK(shard.header().eos_id == 9);
    CHECK(shard.header().split == Split::validation);
    CHECK(shard.header().shard_index == 1);
    CHECK(shard.header().num_documents == 2);
    CHECK(shard.document_start(0) == 0);
    CHECK(shard.document_start(1) == 4);
    CHECK(hex_string(shard.header().tokenizer_sha256) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // of "abc"
}

TEST_CASE("token shard: llm.c shards of both widths are read, ids above 65535 are not cut") {
    const TokenShard wide(case_file("B23_shard_u16/uint32_tokens.bin"));
    CHECK(read_all(wide) == std::vector<std::int64_t>{70000, 65535, 65536, 151643, 1, 2, 3, 4, 5});
    CHECK(wide.header().vocab_size == 0);
    CHECK_FALSE(wide.header().knows_tokenizer());
    const TokenShard narrow(case_file("B23_shard_u16/uint16_token_65535.bin"));
    CHECK(narrow.max_id(0, narrow.num_tokens()) == 65535);
    CHECK(TokenShard(case_file("B25_shard_short/tokens_0.bin")).num_tokens() == 0);
}

TEST_CASE("token shard: each of the eight bad files is refused with its name and both numbers") {
    struct Bad {
        const char* file;
        const char* code;
        const char* found;
        const char* expected;
    };
    const Bad bad[] = {
        {"count_negative.bin", "shard.header", "= -1", "at least 0"},
        {"count_says_less.bin", "shard.size", "1104 bytes", "1064 bytes"},
        {"count_says_more.bin", "shard.size", "1104 bytes", "4000000 tokens"},
        {"header_cut.bin", "shard.size", "1000 bytes", "needs 4096 (llm.c's 1024)"},
        {"odd_byte_at_end.bin", "shard.size", "1105 bytes", "1104 bytes"},
        {"wrong_magic.bin", "shard.magic", "20240521", "20240520"},
        {"wrong_version.bin", "shard.version", "version 2", "version 1"},
        {"zero_bytes.bin", "shard.size", "0 bytes", "needs 4096"},
    };
    for (const Bad& b : bad) {
        const std::string path = case_file(std::string("B28_shard_bad/") + b.file);
        const std::string error = error_of([&] { TokenShard shard(path); });
        CAPTURE(error);
        CHECK(contains(error, std::string(b.code) + ": " + path));
        CHECK(contains(error, b.found));
        CHECK(contains(error, b.expected));
    }
}

TEST_CASE("token shard: a damaged header is refused, whatever field is wrong") {
    const auto refused = [](const std::string& error, const char* code, const char* part) {
        CAPTURE(error);
        CHECK(contains(error, std::string(code) + ": "));
        CHECK(contains(error, part));
    };
    refused(error_with<std::uint64_t>(0, 0), "shard.magic", "cut off while it was written");
    refused(error_with<std::uint32_t>(8, 2), "shard.version", "version 2, this program reads 1");
    refused(error_with<std::uint32_t>(12, 3), "shard.header", "token_bytes = 3, allowed 2 or 4");
    refused(error_with<std::uint64_t>(16, 49), "shard.size", "says 49 tokens, 4192 bytes have");
    refused(error_with<std::uint64_t>(16, 36), "shard.header", "36 tokens of 2 bytes put it at");
    refused(error_with<std::uint64_t>(16, 39), "shard.header", "bytes 4174..4175 behind 39 tokens");
    refused(error_with<std::uint64_t>(16, ~std::uint64_t{0}), "shard.header",
            "num_tokens = 18446744073709551615 is over the limit of 2^63 - 1");
    refused(error_with<std::uint64_t>(16, std::uint64_t{1} << 62), "shard.size",
            "4611686018427387904 tokens");
    refused(error_with<std::uint64_t>(24, 3), "shard.size",
            "3 documents, 4192 bytes have room for 2");
    refused(error_with<std::uint64_t>(24, 1), "shard.size", "has 4192 bytes, its header says 4184");
    refused(error_with<std::uint64_t>(24, std::uint64_t{1} << 61), "shard.size",
            "2305843009213693952 documents");
    refused(error_with<std::uint32_t>(32, 0), "shard.header", "vocab_size = 0, allowed 1..");
    refused(error_with<std::uint32_t>(32, 65537), "shard.header",
            "65537 needs 32-bit ids, but token_bytes = 2 holds 65536");
    refused(error_with<std::uint32_t>(36, 1000), "shard.header",
            "eos_id = 1000 is not below vocab_size = 1000");
    refused(error_with<std::uint32_t>(40, 3), "shard.header", "split = 3, allowed 0..2");
    refused(error_with<std::uint64_t>(48, 4104), "shard.header", "tokens_offset = 4104");
    refused(error_with<std::uint64_t>(56, 4184), "shard.header", "index_offset = 4184");
}

TEST_CASE("token shard: a file cut anywhere is refused") {
    const TempFolder folder;
    const std::string path = folder / "x.bin";
    write_token_shard(path, shard_facts(1000), counting_ids(41), {0, 20});
    const std::int64_t whole = 4096 + 88 + 16;
    CHECK(error_of([&] { TokenShard shard(path); }) == "no error");
    for (std::int64_t size = whole - 1; size >= 0; size -= size > 4000 ? 1 : 500) {
        REQUIRE(truncate(path.c_str(), size) == 0);
        const std::string error = error_of([&] { TokenShard shard(path); });
        CHECK(contains(error, "shard.size: " + path));
    }
}

TEST_CASE("token shard: what cannot be opened is named with the reason") {
    const TempFolder folder;
    CHECK(contains(error_of([&] { TokenShard shard(folder / "none.bin"); }),
                   "none.bin: cannot open: No such file"));
    CHECK(contains(error_of([&] { TokenShard shard(folder.path()); }), "is not a regular file"));
}

TEST_CASE("token shard: at the limit of open files the message says what to raise") {
    const TempFolder folder;
    write_token_shard(folder / "x.bin", shard_facts(1000), counting_ids(40));
    struct rlimit before {};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int next_fd = dup(0);
    close(next_fd);
    const struct rlimit full { static_cast<rlim_t>(next_fd), before.rlim_max };
    REQUIRE(setrlimit(RLIMIT_NOFILE, &full) == 0);
    const std::string error = error_of([&] { TokenShard shard(folder / "x.bin"); });
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(contains(error, "shard.open: " + folder.path()));
    CHECK(contains(error, "raise the limit (ulimit -n)"));
}

TEST_CASE("token shard: tokens and documents out of range are refused with both numbers") {
    const TempFolder folder;
    write_token_shard(folder / "x.bin", shard_facts(1000), counting_ids(40), {0, 99});
    const TokenShard shard(folder / "x.bin");
    std::int32_t out[8];
    CHECK(contains(error_of([&] { shard.read(35, 8, out); }), "the shard has 40"));
    CHECK(contains(error_of([&] { shard.read(-1, 1, out); }), "tokens [-1"));
    CHECK(contains(error_of([&] { shard.document_start(2); }), "document 2"));
    CHECK(contains(error_of([&] { shard.document_start(1); }), "starts at token 99"));
}

TEST_CASE("token shard: over 4 GiB and 2^31 tokens, every position is reached") {
    const TempFolder folder;
    const std::string path = folder / "large.bin";
    ShardHeader header = shard_facts(60000);
    header.num_tokens = (std::int64_t{1} << 31) + 12345;
    header.num_documents = 2;
    header.index_offset = (4096 + 2 * header.num_tokens + 7) / 8 * 8;
    const std::int64_t last_start = (std::int64_t{1} << 31) + 5;

    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, header.index_offset + 16) == 0);
    const std::vector<unsigned char> head = encode_shard_header(header);
    REQUIRE(pwrite(fd, head.data(), head.size(), 0) == 4096);
    const std::uint16_t ids[4] = {11, 22, 33, 59999};
    REQUIRE(pwrite(fd, ids, 8, 4096 + 2 * (header.num_tokens - 4)) == 8);
    REQUIRE(pwrite(fd, ids, 8, 4096 + 2 * ((std::int64_t{1} << 31) - 2)) == 8);
    REQUIRE(pwrite(fd, &last_start, 8, header.index_offset + 8) == 8);
    close(fd);

    const TokenShard shard(path);
    CHECK(shard.num_tokens() == 2147495993);
    std::int32_t read[6];
    shard.read(header.num_tokens - 5, 5, read);
    CHECK(read[0] == 0);
    CHECK(read[1] == 11);
    CHECK(read[4] == 59999);
    shard.read((std::int64_t{1} << 31) - 3, 6, read);
    CHECK(read[0] == 0);
    CHECK(read[1] == 11);
    CHECK(read[3] == 33);
    CHECK(read[5] == 0);
    CHECK(shard.max_id(header.num_tokens - 100, 100) == 59999);
    CHECK(shard.document_start(1) == last_start);
}

TEST_CASE("token shard: truncated while mapped, also within the last page, the next read says so") {
    const TempFolder folder;
    const std::string path = folder / "x.bin";
    for (const std::int64_t size : {5000, 4097, 1000, 0}) {
        write_token_shard(path, shard_facts(1000), counting_ids(20000));
        const TokenShard shard(path);
        std::vector<std::int32_t> out(20000);
        shard.read(0, 20000, out.data());
        REQUIRE(truncate(path.c_str(), size) == 0);
        const auto refuses = [&](const std::string& error) {
            CAPTURE(error);
            CHECK(contains(error, "shard.truncated: " + path));
            CHECK(contains(error, "has " + std::to_string(size) + " bytes now and had 44096"));
        };
        refuses(error_of([&] { shard.read(0, 20000, out.data()); }));  // raises SIGBUS
        refuses(error_of([&] { shard.read(500, 10, out.data()); }));   // in the last page: zeros
        refuses(error_of([&] { shard.max_id(0, 20000); }));
        std::filesystem::remove(path);
    }
}

TEST_CASE("token shard: truncation under eight reading threads is an error in each of them") {
    const TempFolder folder;
    const std::string path = folder / "x.bin";
    const std::vector<std::int64_t> ids = random_ids(1 << 20, 1000, 1);
    write_token_shard(path, shard_facts(1000), ids);
    const TokenShard shard(path);
    std::atomic<int> reading{0};
    std::atomic<int> named_errors{0};
    std::atomic<int> wrong_tokens{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            std::vector<std::int32_t> out(4096);
            const std::string error = error_of([&] {
                for (std::int64_t i = t;; ++i) {
                    const std::int64_t begin = (i * 4096) % (1 << 20);
                    shard.read(begin, 4096, out.data());
                    for (int k = 0; k < 4096; ++k)
                        if (out[k] != ids[begin + k]) wrong_tokens = 1;
                    if (i == t) ++reading;
                }
            });
            if (contains(error, "shard.truncated: " + path)) ++named_errors;
        });
    }
    while (reading < 8)
        std::this_thread::yield();
    REQUIRE(truncate(path.c_str(), 100000) == 0);
    for (std::thread& thread : threads)
        thread.join();
    CHECK(named_errors == 8);
    CHECK(wrong_tokens == 0);
}

TEST_CASE("token shard: equal tokens are recognized across widths and headers, others are not") {
    const TempFolder folder;
    std::vector<std::int64_t> ids = random_ids(200000, 500, 3);
    write_token_shard(folder / "a.bin", shard_facts(500), ids, {0});
    ShardHeader wide = shard_facts(500, 9);
    wide.token_bytes = 4;
    wide.split = Split::test;
    write_token_shard(folder / "b.bin", wide, ids);
    write_llmc_shard(folder / "c.bin", 2, ids);
    const TokenShard a(folder / "a.bin");
    CHECK(same_tokens(a, TokenShard(folder / "b.bin")));
    CHECK(same_tokens(a, TokenShard(folder / "c.bin")));

    // One token differs: first where the fingerprint looks, then where only the comparison does.
    for (const std::size_t at : {std::size_t{0}, std::size_t{199999}, std::size_t{2000}}) {
        std::vector<std::int64_t> other = ids;
        other[at] = (other[at] + 1) % 500;
        write_token_shard(folder / "d.bin", shard_facts(500), other);
        CHECK_FALSE(same_tokens(a, TokenShard(folder / "d.bin")));
    }
    ids.pop_back();
    write_token_shard(folder / "e.bin", shard_facts(500), ids);
    CHECK_FALSE(same_tokens(a, TokenShard(folder / "e.bin")));
}

TEST_CASE("token shard: a writer that cannot write says so") {
    CHECK(contains(error_of([] {
                       write_llmc_shard("/nonexistent/x.bin", 2, {1, 2});
                   }),
                   "shard.write: /nonexistent/x.bin: cannot write 1028 bytes"));
}
