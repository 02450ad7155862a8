// Goal: the shards of a glob are one stream, in a fixed order, with windows across borders; sets
// that cannot be right are refused before the first step. Method: small written shards, and the
// shared cases.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <doctest/doctest.h>

#include "data/token_set.h"
#include "tests/data/shard_fixture.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<std::int64_t> read_all(const TokenSet& set) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(set.num_tokens()));
    set.read(0, set.num_tokens(), ids.data());
    return {ids.begin(), ids.end()};
}

std::string error_of_set(const TokenSetConfig& config) {
    return error_of([&] { TokenSet set(config); });
}

}  // namespace

TEST_CASE("token set: shards follow one another in the order of their names, at any cut") {
    const TempFolder folder;
    const std::vector<std::int64_t> ids = random_ids(100, 1000, 2);
    // Written in another order; a shard may be empty.
    const std::pair<int, int> cuts[] = {{60, 61}, {0, 17}, {61, 100}, {17, 17}, {17, 60}};
    const char* names[] = {"t_3.bin", "t_0.bin", "t_4.bin", "t_1.bin", "t_2.bin"};
    for (int i = 0; i < 5; ++i) {
        write_token_shard(folder / names[i], shard_facts(1000),
                          {ids.begin() + cuts[i].first, ids.begin() + cuts[i].second});
    }
    const TokenSet set({.files = folder / "t_*.bin"});
    CHECK(set.num_tokens() == 100);
    CHECK(set.shards().size() == 5);
    CHECK(set.vocab_size() == 1000);
    CHECK(read_all(set) == ids);
    for (std::int64_t begin = 0; begin <= 100; ++begin) {
        for (std::int64_t count = 0; begin + count <= 100; ++count) {
            std::vector<std::int32_t> out(static_cast<std::size_t>(count) + 1, -5);
            set.read(begin, count, out.data());
            bool equal = out.back() == -5;
            for (std::int64_t i = 0; i < count; ++i)
                equal = equal && out[i] == ids[begin + i];
            if (!equal) FAIL_CHECK("tokens [" << begin << ", +" << count << ") differ");
        }
    }
    CHECK(contains(set.description(), "t_*.bin (5 shards, 100 tokens)"));
    CHECK(contains(error_of([&] { set.read(99, 2, nullptr); }), "there are 100"));
}

TEST_CASE("token set: there are floor((N - 1) / T) windows, and none of less than T + 1 tokens") {
    const std::pair<int, int> expected[] = {{0, 0}, {8, 0}, {9, 1}, {16, 1}, {17, 2}, {33, 4}};
    for (const auto& [tokens, windows] : expected) {
        const TokenSet set(
            {.files = case_file("B25_shard_short/tokens_" + std::to_string(tokens) + ".bin")});
        CHECK(set.num_tokens() == tokens);
        CHECK(set.num_windows(8) == windows);
    }
    const TokenSet set({.files = case_file("B25_shard_short/tokens_9.bin")});
    CHECK(contains(error_of([&] { set.num_windows(0); }), "a window of 0 tokens"));
}

TEST_CASE("token set: a glob without a match is refused with the glob and the key") {
    const TempFolder folder;
    const std::string error = error_of_set({.files = folder / "val_*.bin", .role = "val"});
    CHECK(contains(error, "data.glob: data.val = " + folder.path() + "/val_*.bin matches no file"));
    CHECK(contains(error_of_set({.files = ""}), "data.train is empty"));
}

TEST_CASE("token set: a folder that cannot be listed is an error, not an empty match") {
    const TempFolder folder;
    std::filesystem::create_symlink("loop", folder / "loop");  // refused for root, too
    const std::string error = error_of_set({.files = folder / "loop/*.bin"});
    CHECK(contains(error, "cannot list the files: Too many levels of symbolic links"));
}

TEST_CASE("token set: a bad shard among good ones is named") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(1000), counting_ids(40));
    std::ofstream(folder / "b.bin") << "short";
    CHECK(contains(error_of_set({.files = folder / "*.bin"}), "b.bin has 5 bytes"));
}

TEST_CASE("token set: shards of different tokenizers are refused with both") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(1000, 0x17), counting_ids(40));
    write_token_shard(folder / "b.bin", shard_facts(1000, 0x2a), counting_ids(40));
    const std::string error = error_of_set({.files = folder / "*.bin"});
    CHECK(contains(error, "data.tokenizer: data.train: "));
    CHECK(contains(error, "b.bin was made with tokenizer 2a2a2a2a2a2a2a2a"));
    CHECK(contains(error, "a.bin with 1717171717171717"));

    write_llmc_shard(folder / "b.bin", 2, counting_ids(40));
    CHECK(contains(error_of_set({.files = folder / "*.bin"}), "made with tokenizer unknown"));

    ShardHeader other_eos = shard_facts(1000, 0x17);
    other_eos.eos_id = 4;
    write_token_shard(folder / "b.bin", other_eos, counting_ids(40));
    CHECK(contains(error_of_set({.files = folder / "*.bin"}), "end of document 4"));
}

TEST_CASE("token set: a model with fewer rows than the tokenizer has ids is refused") {
    // As in case B14: 280 entries in model.vocab, added tokens up to id 282.
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(283), counting_ids(40, 280));
    const std::string error = error_of_set({.files = folder / "a.bin", .vocab_size = 280});
    CHECK(contains(error, "data.vocab: data.train: "));
    CHECK(contains(error, "ids up to 282, model.vocab_size = 280"));
    CHECK(error_of_set({.files = folder / "a.bin", .vocab_size = 283}) == "no error");
    CHECK(error_of_set({.files = folder / "a.bin", .vocab_size = 384}) == "no error");
}

TEST_CASE("token set: an id beyond the vocabulary is refused with file, position, id and limit") {
    const std::string path = case_file("B23_shard_u16/uint16_out_of_vocab_50257.bin");
    const std::string error = error_of_set({.files = path, .vocab_size = 50257});
    CHECK(contains(error, "data.token_id: data.train: " + path));
    CHECK(contains(error, "token 1 is id 50257, the vocabulary has 50257 ids (0..50256)"));
    CHECK(error_of_set({.files = path, .vocab_size = 50258}) == "no error");
    CHECK(error_of_set({.files = case_file("B23_shard_u16/uint16_token_65535.bin"),
                        .vocab_size = 65536}) == "no error");

    // The header's own vocabulary counts too, when the model's is larger.
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(1000), {1, 2, 1000, 3});
    CHECK(contains(error_of_set({.files = folder / "a.bin", .vocab_size = 50257}),
                   "token 2 is id 1000, the vocabulary has 1000 ids"));
}

TEST_CASE("token set: an id that does not fit 31 bits is refused, not made negative") {
    const TempFolder folder;
    write_llmc_shard(folder / "a.bin", 4, {1, std::int64_t{1} << 31, 2});
    CHECK(contains(error_of_set({.files = folder / "a.bin"}), "token 1 is id 2147483648"));
    CHECK(contains(error_of_set({.files = folder / "a.bin", .vocab_size = 100}),
                   "token 1 is id 2147483648"));
}

TEST_CASE("token set: the first bad id is named, whatever the number of threads; parts share") {
    const TempFolder folder;
    const std::int64_t block = std::int64_t{1} << 22;
    for (int i = 0; i < 3; ++i) {
        std::vector<std::int64_t> ids(static_cast<std::size_t>(2 * block - 5), 3);
        if (i == 1) ids[1000] = 998;
        if (i == 2) ids[7] = ids[static_cast<std::size_t>(block)] = 999;
        write_token_shard(folder / str("s", i, ".bin"), shard_facts(1000), ids);
    }
    const TokenSet set({.files = folder / "s*.bin"});
    CHECK(set.max_id() == 999);
    for (const int threads : {1, 2, 7}) {
        TokenSetConfig config{.files = folder / "s*.bin", .scan_threads = threads};
        const auto of_model = [&](int part, int parts) {
            // The limit of the scan is the smaller vocabulary; llm.c shards have only the model's.
            config.scan_part = part;
            config.scan_parts = parts;
            const TokenSet scanned(config);
            return scanned.max_id();
        };
        CHECK(of_model(0, 3) == 3);
        CHECK(of_model(1, 3) == 998);
        CHECK(of_model(2, 3) == 999);
    }
    for (int i = 0; i < 3; ++i) {
        std::vector<std::int64_t> ids(static_cast<std::size_t>(2 * block - 5), 3);
        if (i == 1) ids[1000] = 998;
        if (i == 2) ids[7] = ids[static_cast<std::size_t>(block)] = 999;
        write_llmc_shard(folder / str("s", i, ".bin"), 2, ids);
    }
    for (const int threads : {1, 2, 7}) {
        TokenSetConfig config{
            .files = folder / "s*.bin", .vocab_size = 999, .scan_threads = threads};
        CHECK(contains(error_of_set(config), "s2.bin: token 7 is id 999"));
        config.vocab_size = 998;
        CHECK(contains(error_of_set(config), "s1.bin: token 1000 is id 998"));
        config.scan_parts = 3;
        CHECK(error_of_set(config) == "no error");  // part 0 ends in front of it
        config.scan_part = 2;
        CHECK(contains(error_of_set(config), "s2.bin: token 7 is id 999"));
    }
    CHECK(contains(error_of_set({.files = folder / "s*.bin", .scan_part = 3, .scan_parts = 3}),
                   "scan part 3 of 3"));
}

TEST_CASE("token set: a shard overwritten after the scan cannot deliver an id beyond the limit") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(1000), counting_ids(40));
    const TokenSet set({.files = folder / "a.bin"});
    std::fstream file(folder / "a.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 2 * 6);
    file.write("\xff\xff", 2);
    file.close();
    std::int32_t out[9];
    CHECK(error_of([&] { set.read(7, 9, out); }) == "no error");
    CHECK(contains(error_of([&] { set.read(0, 9, out); }), "a.bin: token 6 is id 65535"));
}

TEST_CASE("token set: a shard in both train and val is refused: same file, link, or copy") {
    const TempFolder folder;
    std::filesystem::create_directory(folder / "sub");
    write_token_shard(folder / "train_0.bin", shard_facts(1000), random_ids(5000, 1000, 1));
    write_token_shard(folder / "train_1.bin", shard_facts(1000), random_ids(5000, 1000, 2));
    write_token_shard(folder / "val_0.bin", shard_facts(1000), random_ids(5000, 1000, 3));
    const TokenSet train({.files = folder / "train_*.bin"});
    const auto error_with = [&](const std::string& path) {
        const TokenSet val({.files = path, .role = "val"});
        return error_of([&] { check_separate(train, val); });
    };
    CHECK(error_with(folder / "val_0.bin") == "no error");
    CHECK(contains(error_with(folder / "train_1.bin"), "data.overlap: data.val: "));
    CHECK(contains(error_with(folder / "sub/../train_1.bin"), "is the same file as"));

    std::filesystem::create_symlink(folder / "train_1.bin", folder / "symlink.bin");
    CHECK(contains(error_with(folder / "symlink.bin"), "is the same file as"));
    std::filesystem::create_hard_link(folder / "train_1.bin", folder / "link.bin");
    CHECK(contains(error_with(folder / "link.bin"), "is the same file as"));
    std::filesystem::copy_file(folder / "train_1.bin", folder / "copy.bin");
    const std::string copy = error_with(folder / "copy.bin");
    CHECK(contains(copy, "copy.bin holds the same 5000 tokens as"));
    CHECK(contains(copy, "train_1.bin of data.train"));
    ShardHeader relabelled = shard_facts(1000);
    relabelled.split = Split::validation;
    write_token_shard(folder / "copy.bin", relabelled, random_ids(5000, 1000, 2), {0});
    CHECK(contains(error_with(folder / "copy.bin"), "holds the same 5000 tokens"));

    write_token_shard(folder / "other.bin", shard_facts(1000, 9), random_ids(50, 1000, 4));
    CHECK(contains(error_with(folder / "other.bin"), "data.tokenizer: data.val: "));
}

TEST_CASE("token set: shards of another tokenizer than the model's are refused") {
    const TempFolder folder;
    write_token_shard(folder / "a.bin", shard_facts(1000, 7), counting_ids(40));
    const TokenSet set({.files = folder / "a.bin"});
    Sha256Digest digest;
    digest.fill(7);
    CHECK(error_of([&] { check_tokenizer(set, digest, "m/tokenizer.json"); }) == "no error");
    digest.fill(8);
    const std::string error = error_of([&] { check_tokenizer(set, digest, "m/tokenizer.json"); });
    CHECK(contains(error, "a.bin was made with tokenizer 0707070707070707"));
    CHECK(contains(error, "m/tokenizer.json is 0808080808080808"));
}

TEST_CASE("token set: in a stream of over 2^31 tokens, windows and bad ids are found at the end") {
    const TempFolder folder;
    ShardHeader header = shard_facts(60000);
    header.num_tokens = (std::int64_t{1} << 31) + 100;
    header.index_offset = (4096 + 2 * header.num_tokens + 7) / 8 * 8;
    const int fd = open((folder / "a.bin").c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(ftruncate(fd, header.index_offset) == 0);
    const std::vector<unsigned char> head = encode_shard_header(header);
    REQUIRE(pwrite(fd, head.data(), head.size(), 0) == 4096);
    const std::uint16_t id = 51234;
    REQUIRE(pwrite(fd, &id, 2, 4096 + 2 * (header.num_tokens - 1)) == 2);
    write_token_shard(folder / "b.bin", shard_facts(60000), counting_ids(1000));

    // Only the last of 1000 parts is scanned: the holes in front of it would fill the page cache.
    TokenSetConfig config{.files = folder / "*.bin", .scan_part = 999, .scan_parts = 1000};
    const TokenSet set(config);
    CHECK(set.num_tokens() == header.num_tokens + 1000);
    CHECK(set.num_windows(1) == header.num_tokens + 999);
    std::int32_t out[3];
    set.read(header.num_tokens - 2, 3, out);
    CHECK(out[0] == 0);
    CHECK(out[1] == 51234);
    CHECK(out[2] == 3);
    set.read(set.num_tokens() - 1, 1, out);
    CHECK(out[0] == counting_ids(1000)[999]);

    const std::uint16_t beyond = 60000;
    REQUIRE(pwrite(fd, &beyond, 2, 4096 + 2 * (header.num_tokens - 1)) == 2);
    CHECK(contains(error_of_set(config), "a.bin: token 2147483747 is id 60000"));
    close(fd);
}
