#include "engine/train/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/core/check.h"
#include "engine/core/dtype.h"
#include "engine/train/safetensors_header.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are copied as they are in the file");

namespace ingot {
namespace {

constexpr std::int64_t kHeaderLimitBytes = 100000000;  // of the format
constexpr std::int64_t kChunkElements = 1 << 16;       // converted at once

// IEEE 754 binary16.
double half_to_double(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    double value;
    if (exponent == 31) {
        value = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
        value = std::ldexp(fraction, -24);
    } else {
        value = std::ldexp(1024 + fraction, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

void check_range(const std::string& path,
                 const SafetensorsEntry& e,
                 std::int64_t begin,
                 std::int64_t count) {
    const std::int64_t numel = e.numel();
    ENSURE(begin >= 0 && count >= 0 && begin <= numel && count <= numel - begin,
           "safetensors.range", "safetensors: ", path, ": elements ", begin, " + ", count,
           " of tensor ", e.name, ", which has ", numel);
}

// Reads [begin, begin + count) in pieces of type Stored and gives each value to convert().
template <class Stored, class Out, class Convert>
void read_converted(const SafetensorsReader& reader,
                    const std::string& name,
                    std::int64_t begin,
                    std::int64_t count,
                    Out* out,
                    Convert convert) {
    std::vector<Stored> chunk(static_cast<std::size_t>(std::min(count, kChunkElements)));
    for (std::int64_t done = 0; done < count; done += kChunkElements) {
        const std::int64_t n = std::min(kChunkElements, count - done);
        reader.read_raw(name, begin + done, n, chunk.data());
        for (std::int64_t i = 0; i < n; ++i) {
            out[done + i] = convert(chunk[static_cast<std::size_t>(i)]);
        }
    }
}

// Values as Out: float or double. F64 to float rounds to nearest, the others are exact.
template <class Out>
void read_floats(const SafetensorsReader& reader,
                 const SafetensorsEntry& e,
                 std::int64_t begin,
                 std::int64_t count,
                 Out* out) {
    check_range(reader.path(), e, begin, count);
    if (e.dtype == "F32") {
        read_converted<float>(reader, e.name, begin, count, out, [](float v) { return Out(v); });
    } else if (e.dtype == "F64") {
        read_converted<double>(reader, e.name, begin, count, out, [](double v) { return Out(v); });
    } else if (e.dtype == "BF16") {
        read_converted<bf16>(reader, e.name, begin, count, out,
                             [](bf16 v) { return Out(to_float(v)); });
    } else if (e.dtype == "F16") {
        read_converted<std::uint16_t>(reader, e.name, begin, count, out,
                                      [](std::uint16_t v) { return Out(half_to_double(v)); });
    } else {
        fail("safetensors.dtype", "safetensors: ", reader.path(), ": tensor ", e.name, " is ",
             e.dtype, ", needed is F32, BF16, F16 or F64");
    }
}

std::int64_t read_header_length(const FileReader& file) {
    const std::string& path = file.path();
    char head[64] = {};
    const std::int64_t there = std::min<std::int64_t>(sizeof(head), file.size_bytes());
    file.read(0, head, there);
    const std::string begin(head, static_cast<std::size_t>(there));
    if (begin.rfind("version https://git-lfs", 0) == 0) {
        fail_safetensors(path, "it is a Git LFS pointer, not the weights; run `git lfs pull`");
    }
    // A header length within the limit has bytes of value 0; a page of text has none.
    const std::size_t first = begin.find_first_not_of(" \r\n\t");
    const bool is_text = begin.find('\0') == std::string::npos;
    if (is_text && first != std::string::npos && begin[first] == '<') {
        fail_safetensors(path, "it is not a safetensors file but looks like a web page (HTML)");
    }
    if (file.size_bytes() < 8) {
        fail_safetensors(path, str("it has ", file.size_bytes(),
                                   " bytes, shorter than the 8-byte header length"));
    }
    std::uint64_t length;
    std::memcpy(&length, head, sizeof(length));
    if (length > static_cast<std::uint64_t>(kHeaderLimitBytes)) {
        fail_safetensors(path, str("its header length is ", length,
                                   ", over the limit of the format of ", kHeaderLimitBytes));
    }
    if (static_cast<std::int64_t>(length) > file.size_bytes() - 8) {
        fail_safetensors(path, str("its header length is ", length, ", but the file has only ",
                                   file.size_bytes() - 8, " bytes after it"));
    }
    return static_cast<std::int64_t>(length);
}

}  // namespace

std::int64_t SafetensorsEntry::numel() const {
    std::int64_t product = 1;
    for (const std::int64_t dim : shape)
        product *= dim;
    return product;
}

std::int64_t safetensors_size_of_or_zero(const std::string& dtype) {
    static const std::map<std::string, std::int64_t> sizes = {
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
        {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
        {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 0 : found->second;
}

std::int64_t safetensors_size_of(const std::string& dtype) {
    const std::int64_t size = safetensors_size_of_or_zero(dtype);
    ENSURE(size > 0, "safetensors.dtype", "safetensors: dtype ", dtype, " is unknown");
    return size;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
    const std::int64_t length = read_header_length(file_);
    data_begin_bytes_ = 8 + length;
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read(8, text.data(), length);
    if (text.empty() || text[0] != '{') {
        fail_safetensors(path, "its header is not an object (it does not begin with '{')");
    }
    const std::int64_t data_bytes = file_.size_bytes() - data_begin_bytes_;
    SafetensorsHeader header = parse_safetensors_header(text, data_bytes, path);
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
    for (std::size_t i = 0; i < entries_.size(); ++i)
        index_by_name_[entries_[i].name] = i;
}

const SafetensorsEntry* SafetensorsReader::find(const std::string& name) const {
    const auto found = index_by_name_.find(name);
    return found == index_by_name_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsReader::entry(const std::string& name) const {
    const SafetensorsEntry* found = find(name);
    ENSURE(found != nullptr, "safetensors.missing_tensor", "safetensors: ", path(),
           " has no tensor ", name, " among its ", entries_.size());
    return *found;
}

void SafetensorsReader::read_raw(const std::string& name,
                                 std::int64_t begin,
                                 std::int64_t count,
                                 void* out) const {
    const SafetensorsEntry& e = entry(name);
    check_range(path(), e, begin, count);
    const std::int64_t element_bytes = safetensors_size_of(e.dtype);
    file_.read(data_begin_bytes_ + e.begin_bytes + begin * element_bytes, out,
               count * element_bytes);
}

void SafetensorsReader::read_as_f32(const std::string& name,
                                    std::int64_t begin,
                                    std::int64_t count,
                                    float* out) const {
    const SafetensorsEntry& e = entry(name);
    if (e.dtype == "F32") return read_raw(name, begin, count, out);  // bit for bit
    read_floats(*this, e, begin, count, out);
}

void SafetensorsReader::read_as_f64(const std::string& name,
                                    std::int64_t begin,
                                    std::int64_t count,
                                    double* out) const {
    const SafetensorsEntry& e = entry(name);
    if (e.dtype == "F64") return read_raw(name, begin, count, out);
    read_floats(*this, e, begin, count, out);
}

void SafetensorsReader::read_i32(const std::string& name,
                                 std::int64_t begin,
                                 std::int64_t count,
                                 std::int32_t* out) const {
    const SafetensorsEntry& e = entry(name);
    check_range(path(), e, begin, count);
    if (e.dtype == "I32") return read_raw(name, begin, count, out);
    ENSURE(e.dtype == "I64", "safetensors.dtype", "safetensors: ", path(), ": tensor ", name,
           " is ", e.dtype, ", needed is I32 or I64");
    const auto narrow = [&](std::int64_t value) {
        const auto result = static_cast<std::int32_t>(value);
        ENSURE(result == value, "safetensors.range", "safetensors: ", path(), ": tensor ", name,
               " holds ", value, ", more than 32 bits can");
        return result;
    };
    read_converted<std::int64_t>(*this, name, begin, count, out, narrow);
}

}  // namespace ingot
