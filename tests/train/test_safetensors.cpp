// Goal: every valid safetensors file loads with its values, every damaged one is refused with the
// reason, and our own files are valid, aligned and whole. Method: the case folders B41, B43 and
// B44; files made byte by byte; written files are read back and their bytes looked at.
#include <chrono>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/core/dtype.h"
#include "engine/train/safetensors.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

using namespace ingot;
using namespace ingot::test;
using doctest::Contains;
using Json = nlohmann::json;

namespace {

const std::string kCases = source_dir() + "/tests/cases/";

Json expected_of(const std::string& folder) {
    return Json::parse(read_all(kCases + folder + "/expected.json"));
}

std::vector<float> values(const SafetensorsReader& reader, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(reader.entry(name).numel()), -77.0F);
    reader.read_as_f32(name, 0, reader.entry(name).numel(), out.data());
    return out;
}

// Header length, header and data as a file.
std::string file_text(const std::string& header, const std::string& data) {
    const std::uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return text + header + data;
}

doctest::String refused(const std::string& path) {
    return error_of("safetensors.bad", [&] { SafetensorsReader reader(path); });
}

doctest::String header_refused(const std::string& header, const std::string& data = "") {
    const TempFolder folder;
    write_all(folder / "f", file_text(header, data));
    return refused(folder / "f");
}

std::uint64_t header_length(const std::string& text) {
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), 8);
    return length;
}

}  // namespace

TEST_CASE("safetensors: files with every header length residue and odd offsets load (B43)") {
    int count = 0;
    const Json expected = expected_of("B43_st_align");
    for (const auto& [file, tensors] : expected.items()) {
        if (file == "writer_rule") continue;
        const SafetensorsReader reader(kCases + "B43_st_align/" + file);
        for (const auto& [name, list] : tensors.items()) {
            if (name == "header_len_mod_8") continue;
            INFO(file, " ", name);
            if (reader.entry(name).dtype == "U8") {
                std::vector<std::uint8_t> bytes(list.size());
                reader.read_raw(name, 0, static_cast<std::int64_t>(list.size()), bytes.data());
                CHECK(bytes == list.get<std::vector<std::uint8_t>>());
            } else {
                CHECK(values(reader, name) == list.get<std::vector<float>>());
            }
            ++count;
        }
    }
    CHECK(count == 10);
}

TEST_CASE("safetensors: empty, scalar, escaped, half and double tensors load (B43 good)") {
    const Json expected = expected_of("B43_st_align/good");
    int count = 0;
    for (const auto& [file, tensors] : expected.items()) {
        const SafetensorsReader reader(kCases + "B43_st_align/good/" + file);
        if (!tensors.is_object()) continue;
        for (const auto& [name, list] : tensors.items()) {
            INFO(file, " ", name);
            if (reader.entry(name).dtype == "I64") {
                std::int32_t value = 0;
                reader.read_i32(name, 0, 1, &value);
                CHECK(value == list[0].get<int>());
            } else {
                CHECK(values(reader, name) == list.get<std::vector<float>>());
            }
            ++count;
        }
    }
    CHECK(count == 13);
    const SafetensorsReader odd(kCases +
                                "B43_st_align/good/metadata_and_empty_and_scalar.safetensors");
    CHECK(odd.entry("s").shape.empty());
    CHECK(odd.entry("e").numel() == 0);
    CHECK_FALSE(odd.metadata().empty());
    const SafetensorsReader nan(kCases + "B43_st_align/good/nan_and_inf.safetensors");
    const SafetensorsEntry& e = nan.entries().at(0);
    std::vector<std::uint32_t> raw(static_cast<std::size_t>(e.numel())), read(raw.size());
    nan.read_raw(e.name, 0, e.numel(), raw.data());
    nan.read_as_f32(e.name, 0, e.numel(), reinterpret_cast<float*>(read.data()));
    CHECK(raw == read);
}

TEST_CASE("safetensors: every damaged file is refused within a second with its reason (B44)") {
    const std::vector<std::pair<const char*, const char*>> reasons = {
        {"file_of_7_bytes", "has 7 bytes, shorter than the 8-byte"},
        {"header_length_2_63", "header length is 9223372036854775808, over the limit"},
        {"header_length_all_ones", "header length is 18446744073709551615, over the limit"},
        {"header_length_100000001", "100000001, over the limit of the format of 100000000"},
        {"header_length_past_end", "but the file has only"},
        {"git_lfs_pointer", "a Git LFS pointer"},
        {"html_page", "not a safetensors file"},
        {"not_json", "header is not JSON"},
        {"json_array", "not an object"},
        {"header_not_utf8", "header is not UTF-8"},
        {"data_cut_short", "1 bytes are missing"},
        {"trailing_bytes", "1 bytes follow after the last tensor"},
        {"hole_between_tensors", "bytes 16..20 of the data belong to no tensor"},
        {"overlap", "overlaps"},
        {"offsets_reversed", "before its begin"},
        {"offset_past_end", "past the end"},
        {"offset_negative", "a negative number"},
        {"offset_fraction", "not an integer"},
        {"size_disagrees_with_shape", "shape x dtype is 24 bytes, but its data_offsets span 16"},
        {"shape_product_overflows", "overflows"},
        {"shape_negative", "a negative number"},
        {"unknown_dtype", "unknown dtype F33"},
        {"missing_offsets", "no data_offsets"},
        {"name_with_nul", "NUL"},
        {"metadata_not_strings", "values must be strings"}};
    CHECK(expected_of("B44_st_bad").size() == reasons.size());
    for (const auto& [file, reason] : reasons) {
        const std::string path = kCases + "B44_st_bad/" + file + ".safetensors";
        const auto start = std::chrono::steady_clock::now();
        const doctest::String message = refused(path);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        CHECK_MESSAGE(message == Contains(reason), path);
        CHECK(message == Contains(path.c_str()));
        CHECK(seconds.count() < 1.0);
    }
}

TEST_CASE("safetensors: headers of another form are refused") {
    const std::string good = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
    CHECK(header_refused("{\"a\":{" + good + "}}", "x") == "");
    CHECK(header_refused("{\"a\":{" + good + "},\"a\":{" + good + "}}", "x") ==
          Contains("the name a is there twice"));
    CHECK(header_refused("{\"a\":{\"dtype\":\"U8\"," + good + "}}", "x") ==
          Contains("a.dtype is there twice"));
    CHECK(header_refused("{\"a\":{\"more\":1," + good + "}}", "x") ==
          Contains("a.more is no field of the format"));
    CHECK(header_refused(R"({"a":5})") != "");
    CHECK(header_refused(R"({"a":{"dtype":5,"shape":[],"data_offsets":[0,0]}})") ==
          Contains("a.dtype is 5"));
    CHECK(header_refused(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})") != "");
    CHECK(header_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})") ==
          Contains("has 3 data_offsets"));
    CHECK(header_refused(
              R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})") ==
          Contains("more than 9223372036854775807"));
    CHECK(header_refused(R"({"__metadata__":{"a":{}}})") == Contains("must be strings"));
    CHECK(header_refused("{} x") == Contains("not JSON"));
    CHECK(header_refused(" {}") == Contains("does not begin with '{'"));
    CHECK(header_refused("") == Contains("does not begin with '{'"));
    CHECK(header_refused("{}   ") == "");
    CHECK(header_refused("{\"a\":" + std::string(100000, '[') + "}") != "");
}

TEST_CASE("safetensors: no cut and no changed byte of a file crashes the reader or goes unseen") {
    const TempFolder folder;
    const std::string good = read_all(kCases + "B43_st_align/good/basic.safetensors");
    for (std::size_t size = 0; size < good.size(); ++size) {
        write_all(folder / "f", good.substr(0, size));
        CHECK(refused(folder / "f") != "");
    }
    const SafetensorsReader original(kCases + "B43_st_align/good/basic.safetensors");
    const std::size_t header_end = 8 + header_length(good);
    int loaded = 0, refusals = 0;
    for (std::size_t i = 0; i < header_end; ++i) {
        for (const char c : {'\0', '"', '{', '}', ',', '9', '\xff'}) {
            if (good[i] == c) continue;
            std::string changed = good;
            changed[i] = c;
            write_all(folder / "f", changed);
            if (refused(folder / "f") != "") {
                ++refusals;
                continue;
            }
            // Only a letter of a name can have changed: types, shapes and places are the same.
            const SafetensorsReader reader(folder / "f");
            REQUIRE(reader.entries().size() == original.entries().size());
            for (std::size_t k = 0; k < reader.entries().size(); ++k) {
                CHECK(reader.entries()[k].dtype == original.entries()[k].dtype);
                CHECK(reader.entries()[k].shape == original.entries()[k].shape);
                CHECK(reader.entries()[k].end_bytes == original.entries()[k].end_bytes);
            }
            ++loaded;
        }
    }
    CHECK(loaded <= 2 * 7);  // two names of one letter
    CHECK(refusals > 500);
}

TEST_CASE("safetensors: reading asks for tensors, ranges and types that are there") {
    const SafetensorsReader reader(kCases + "B43_st_align/good/bf16_f16_f64_i64.safetensors");
    float value = 0;
    std::int32_t integer = 0;
    double wide = 0;
    CHECK(error_of("safetensors.missing_tensor", [&] {
              reader.read_as_f32("none", 0, 1, &value);
          }) == Contains("has no tensor none among its 4"));
    CHECK(error_of("safetensors.range", [&] { reader.read_as_f32("h", 1, 2, &value); }) ==
          Contains("elements 1 + 2 of tensor h, which has 2"));
    CHECK(error_of("safetensors.range", [&] { reader.read_as_f32("h", -1, 1, &value); }) != "");
    CHECK(error_of("safetensors.dtype", [&] { reader.read_as_f32("i", 0, 1, &value); }) ==
          Contains("tensor i is I64, needed is F32"));
    CHECK(error_of("safetensors.dtype", [&] { reader.read_i32("h", 0, 1, &integer); }) != "");
    reader.read_as_f64("d", 0, 1, &wide);
    CHECK(wide == 0.1);
    reader.read_as_f32("h", 1, 1, &value);
    CHECK(value == -3.0F);

    const TempFolder folder;
    const std::int64_t big = std::int64_t{1} << 40;
    SafetensorsWriter writer(folder / "i64", {{"x", "I64", {}}});
    writer.write("x", &big, 8);
    writer.finish();
    CHECK(error_of("safetensors.range", [&] {
              SafetensorsReader(folder / "i64").read_i32("x", 0, 1, &integer);
          }) == Contains("holds 1099511627776"));
}

TEST_CASE("safetensors: half precision values are exact, for all 65536 of them") {
    const TempFolder folder;
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i)
        bits[i] = static_cast<std::uint16_t>(i);
    SafetensorsWriter writer(folder / "f", {{"h", "F16", {256, 256}}, {"b", "BF16", {65536}}});
    writer.write("h", bits.data(), 2 * 65536);
    writer.write("b", bits.data(), 2 * 65536);
    writer.finish();
    const SafetensorsReader reader(folder / "f");
    const std::vector<float> half = values(reader, "h");
    const std::vector<float> brain = values(reader, "b");
    int wrong = 0;
    for (int i = 0; i < 65536; ++i) {
        const int exponent = (i >> 10) & 31, fraction = i & 1023;
        double expected = exponent == 0 ? fraction * std::exp2(-24.0)
                                        : (1.0 + fraction / 1024.0) * std::exp2(exponent - 15.0);
        if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
        if (i >= 32768) expected = -expected;
        const auto at = static_cast<std::size_t>(i);
        const bool same =
            std::isnan(expected) ? std::isnan(half[at]) : static_cast<double>(half[at]) == expected;
        const float wide = to_float(bf16{bits[at]});
        wrong += same && std::memcmp(&wide, &brain[at], 4) == 0 ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("safetensors: our files are aligned for names of every length residue, and read back") {
    const TempFolder folder;
    for (int length = 1; length <= 16; ++length) {
        const std::string name(static_cast<std::size_t>(length), 'n');
        const std::string path = folder / std::to_string(length);
        const float numbers[3] = {1.5F, -2.0F, 3.0F};
        const std::uint8_t byte = 7;
        SafetensorsWriter writer(path,
                                 {{"byte", "U8", {1}}, {name, "F32", {3}}, {"w", "BF16", {3}}});
        writer.write(name, numbers, sizeof(numbers));
        writer.write("byte", &byte, 1);
        writer.write_f32("w", 0, 3, numbers);
        writer.finish();
        const std::string text = read_all(path);
        CHECK((8 + header_length(text)) % 8 == 0);
        const SafetensorsReader reader(path);
        CHECK(values(reader, name) == std::vector<float>{1.5F, -2.0F, 3.0F});
        CHECK(values(reader, "w") == std::vector<float>{1.5F, -2.0F, 3.0F});
        CHECK(reader.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
        for (const SafetensorsEntry& e : reader.entries()) {
            CHECK(e.begin_bytes % safetensors_size_of(e.dtype) == 0);
        }
    }
}

TEST_CASE(
    "safetensors: the writer takes pieces in any order, empty tensors, scalars and any name") {
    const TempFolder folder;
    constexpr std::int64_t kCount = 200001;  // several conversion chunks and a rest
    std::vector<float> data(kCount);
    for (std::int64_t i = 0; i < kCount; ++i)
        data[static_cast<std::size_t>(i)] = float(i % 251) / 4;
    const std::string odd = "a \"b\" \\ \n é/😀";
    SafetensorsWriter writer(folder / "f", {{"w", "BF16", {kCount}},
                                            {odd, "F32", {}},
                                            {"empty", "F32", {3, 0, 5}},
                                            {"v", "F32", {kCount}}});
    writer.write_f32("w", 100000, kCount - 100000, data.data() + 100000);
    writer.write_f32("v", 7, kCount - 7, data.data() + 7);
    writer.write_f32("v", 0, 7, data.data());
    writer.write_f32("w", 0, 100000, data.data());
    writer.write(odd, data.data() + 9, 4);
    CHECK_FALSE(file_exists(folder / "f"));
    writer.finish();
    const SafetensorsReader reader(folder / "f");
    CHECK(values(reader, "w") == data);
    CHECK(values(reader, "v") == data);
    CHECK(values(reader, odd) == std::vector<float>{data[9]});
    CHECK(reader.entry("empty").shape == std::vector<std::int64_t>{3, 0, 5});
    SafetensorsWriter nothing(folder / "nothing", {}, {});
    nothing.finish();
    CHECK(SafetensorsReader(folder / "nothing").entries().empty());
}

TEST_CASE("safetensors: an unfinished or wrongly filled file does not appear") {
    const TempFolder folder;
    const float x[2] = {1, 2};
    {
        SafetensorsWriter writer(folder / "f", {{"a", "F32", {2}}, {"i", "I32", {1}}});
        writer.write_f32("a", 0, 1, x);
        CHECK(error_of("safetensors.incomplete", [&] { writer.finish(); }) ==
              Contains("1 elements of tensor a were written, it has 2"));
        CHECK(error_of("safetensors.range", [&] { writer.write("a", x, 4); }) ==
              Contains("4 bytes for tensor a, which has 8"));
        CHECK(error_of("safetensors.range", [&] { writer.write_f32("a", 1, 2, x); }) != "");
        CHECK(error_of("safetensors.missing_tensor", [&] { writer.write("b", x, 8); }) ==
              Contains("tensor b was not announced"));
        CHECK(error_of("safetensors.dtype", [&] { writer.write_f32("i", 0, 1, x); }) != "");
    }
    CHECK_FALSE(file_exists(folder / "f"));
    CHECK_FALSE(file_exists(folder / "f.partial"));
    using Entries = std::vector<SafetensorsEntry>;
    const auto open = [&](const Entries& entries) { SafetensorsWriter w(folder / "g", entries); };
    CHECK(error_of("safetensors.write", [&] { open({{"a", "U8", {}}, {"a", "U8", {}}}); }) != "");
    CHECK(error_of("safetensors.write", [&] { open({{std::string("a\0b", 3), "U8", {}}}); }) != "");
    CHECK(error_of("safetensors.write", [&] { open({{"\xff", "U8", {}}}); }) == Contains("UTF-8"));
    CHECK(error_of("safetensors.write", [&] { open({{"a", "U8", {-1}}}); }) == Contains("-1"));
    CHECK(error_of("safetensors.dtype", [&] { open({{"a", "F33", {}}}); }) == Contains("F33"));
}

TEST_CASE("safetensors: a full disk while exporting is named with the file") {
    const TempFolder folder;
    std::filesystem::create_symlink("/dev/full", folder / "model.safetensors.partial");
    CHECK(error_of("file.full", [&] {
              SafetensorsWriter writer(folder / "model.safetensors", {{"a", "U8", {}}});
          }) == Contains("/model.safetensors: No space left on device"));
}

TEST_CASE(
    "safetensors: an index leads to its files, wins over a stray file, and is checked (B41)") {
    const std::string cases = kCases + "B41_hf_sharded/";
    const auto folder_refused = [&](const std::string& name) {
        return error_of("safetensors.index", [&] { SafetensorsFolder folder(cases + name); });
    };
    const SafetensorsFolder complete(cases + "complete");
    CHECK(complete.contains("lm_head.weight"));
    CHECK_FALSE(complete.contains("lm_head.bias"));
    const SafetensorsFolder stray(cases + "stray_model_safetensors_beside");
    CHECK(stray.names() == complete.names());
    std::vector<float> a(4), b(4);
    complete.read_as_f32("lm_head.weight", 3, 4, a.data());
    stray.read_as_f32("lm_head.weight", 3, 4, b.data());
    CHECK(a == b);
    CHECK(a != std::vector<float>(4, 1.0F));  // the stray file holds ones
    CHECK(complete.entry("lm_head.weight").shape.size() == 2);
    CHECK(error_of("safetensors.missing_tensor", [&] { complete.file_of("x"); }) != "");

    CHECK(folder_refused("second_file_missing") ==
          Contains("model-00002-of-00002.safetensors, which is missing"));
    CHECK(folder_refused("tensor_listed_in_the_wrong_file") ==
          Contains("tensor lm_head.weight is listed in model-00002-of-00002.safetensors"));
    CHECK(folder_refused("path_leaves_the_directory") == Contains("needed is a plain file name"));
}

TEST_CASE("safetensors: folders without weights and broken indexes are refused") {
    const TempFolder folder;
    const auto folder_refused = [&] {
        return error_of("safetensors.index", [&] { SafetensorsFolder f(folder.path()); });
    };
    CHECK(folder_refused() == Contains("has no model.safetensors"));
    write_all(folder / "pytorch_model.bin", "x");
    CHECK(folder_refused() == Contains("safe_serialization"));
    const std::string index = folder / "model.safetensors.index.json";
    write_all(index, "{");
    CHECK(folder_refused() == Contains("it is not JSON"));
    write_all(index, R"({"metadata": {}})");
    CHECK(folder_refused() == Contains("no weight_map"));
    write_all(index, R"({"weight_map": {"a": 5}})");
    CHECK(folder_refused() == Contains("the file of tensor a is no string"));
    write_all(index, R"({"weight_map": {"a": "x", "a": "y"}})");
    CHECK(folder_refused() == Contains("the name a is there twice"));
    for (const char* name : {"", "..", "a/b", "/etc/passwd"}) {
        write_all(index, Json{{"weight_map", {{"a", name}}}}.dump());
        CHECK(folder_refused() == Contains("needed is a plain file name"));
    }
    SafetensorsWriter writer(folder / "x", {{"a", "U8", {0}}, {"extra", "U8", {0}}});
    writer.finish();
    write_all(index, R"({"weight_map": {"a": "x"}})");
    CHECK(folder_refused() == Contains("tensor extra of x is not listed"));
}
