#include "engine/train/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// Reads the header event by event: it has a fixed form of three levels, so that nothing but its
// entries is kept, and every surprise is refused where it appears.
class HeaderReader : public nlohmann::json_sax<Json> {
  public:
    HeaderReader(const std::string& path, SafetensorsHeader& header)
        : path_(path), header_(header) {}

    bool null() override { refuse("null"); }
    bool boolean(bool) override { refuse("true or false"); }
    bool binary(binary_t&) override { refuse("binary data"); }
    bool number_integer(number_integer_t value) override {
        if (!in_list()) refuse(str(value));
        bad(str(where(), " holds ", value, ", a negative number"));
    }
    bool number_float(number_float_t, const string_t& text) override {
        if (!in_list()) refuse(text);
        bad(str(where(), " holds ", text, ", which is not an integer of 64 bits"));
    }
    bool number_unsigned(number_unsigned_t value) override {
        if (!in_list()) refuse(str(value));
        constexpr std::uint64_t kLimit = std::numeric_limits<std::int64_t>::max();
        if (value > kLimit) bad(str(where(), " holds ", value, ", more than ", kLimit));
        list_.push_back(static_cast<std::int64_t>(value));
        return true;
    }
    bool string(string_t& value) override {
        if (depth_ == 2 && name_ == kMetadata) {
            header_.metadata[field_] = value;
        } else if (depth_ == 2 && field_ == "dtype") {
            dtype_ = value;
        } else {
            refuse("a string");
        }
        return true;
    }
    bool start_object(std::size_t) override {
        if (depth_ > 1) refuse("an object");
        ++depth_;
        if (depth_ == 2) {
            fields_.clear();
            dtype_.reset();
            shape_.reset();
            offsets_.reset();
        }
        return true;
    }
    bool key(string_t& value) override {
        if (value.find('\0') != std::string::npos)
            bad(str(where(), ": a name holds a NUL character"));
        if (depth_ == 1) {
            name_ = value;
            if (!names_.insert(value).second) bad(str("the name ", value, " is there twice"));
        } else {
            field_ = value;
            if (!fields_.insert(value).second) bad(str(where(), " is there twice"));
        }
        return true;
    }
    bool end_object() override {
        if (depth_ == 2 && name_ != kMetadata) add_entry();
        --depth_;
        return true;
    }
    bool start_array(std::size_t) override {
        const bool wanted =
            depth_ == 2 && name_ != kMetadata && (field_ == "shape" || field_ == "data_offsets");
        if (!wanted) refuse("an array");
        ++depth_;
        list_.clear();
        return true;
    }
    bool end_array() override {
        --depth_;
        (field_ == "shape" ? shape_ : offsets_) = list_;
        return true;
    }
    bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) override {
        // Both texts are nlohmann's: "... invalid string: ill-formed UTF-8 byte; last read: ...".
        const std::string what = error.what();
        if (what.find("UTF-8") != std::string::npos) {
            bad(str("its header is not UTF-8 (byte ", byte, " of the header)"));
        }
        bad(str("its header is not JSON (byte ", byte, " of the header)"));
    }

  private:
    static constexpr const char* kMetadata = "__metadata__";

    bool in_list() const { return depth_ == 3; }

    std::string where() const {
        if (depth_ == 0) return "its header";
        if (depth_ == 1) return name_.empty() ? "its header" : name_;
        return str(name_, ".", field_);
    }
    [[noreturn]] void bad(const std::string& reason) const { fail_safetensors(path_, reason); }
    [[noreturn]] void refuse(const std::string& found) const {
        if (depth_ == 0) bad(str("its header is ", found, ", not an object"));
        if (name_ == kMetadata) {
            bad(str("__metadata__ holds ", found, "; its values must be strings"));
        }
        const bool known = field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
        if (depth_ >= 2 && !known) bad(str(where(), " is no field of the format"));
        bad(str(where(), " is ", found, ", which has no place there"));
    }

    void add_entry() {
        if (!dtype_) bad(str("tensor ", name_, " has no dtype"));
        if (!shape_) bad(str("tensor ", name_, " has no shape"));
        if (!offsets_) bad(str("tensor ", name_, " has no data_offsets"));
        if (offsets_->size() != 2) {
            bad(str("tensor ", name_, " has ", offsets_->size(), " data_offsets instead of 2"));
        }
        header_.entries.push_back({name_, *dtype_, *shape_, offsets_->at(0), offsets_->at(1)});
    }

    const std::string& path_;
    SafetensorsHeader& header_;
    int depth_ = 0;
    std::string name_, field_;  // of the levels 1 and 2
    std::set<std::string> names_, fields_;
    std::vector<std::int64_t> list_;
    std::optional<std::string> dtype_;
    std::optional<std::vector<std::int64_t>> shape_, offsets_;
};

// Bytes of the tensor, or nothing when the number does not fit in 64 bits.
std::optional<std::int64_t> checked_size_bytes(const SafetensorsEntry& entry,
                                               std::int64_t element_bytes) {
    std::int64_t size = element_bytes;
    for (const std::int64_t dim : entry.shape) {
        if (__builtin_mul_overflow(size, dim, &size)) return std::nullopt;
    }
    return size;
}

void check_entry(const SafetensorsEntry& e, std::int64_t data_bytes, const std::string& path) {
    const std::int64_t element_bytes = safetensors_size_of_or_zero(e.dtype);
    if (element_bytes == 0) {
        fail_safetensors(path, str("tensor ", e.name, " has the unknown dtype ", e.dtype));
    }
    if (e.begin_bytes > e.end_bytes) {
        fail_safetensors(path, str("tensor ", e.name, " ends at byte ", e.end_bytes,
                                   ", before its begin at byte ", e.begin_bytes));
    }
    if (e.end_bytes > data_bytes) {
        fail_safetensors(path, str("tensor ", e.name, " ends at byte ", e.end_bytes,
                                   " of the data, past the end at ", data_bytes, ": ",
                                   e.end_bytes - data_bytes, " bytes are missing"));
    }
    const std::optional<std::int64_t> size = checked_size_bytes(e, element_bytes);
    if (!size) {
        fail_safetensors(path, str("tensor ", e.name, ": the product of its shape overflows"));
    }
    if (*size != e.end_bytes - e.begin_bytes) {
        fail_safetensors(path,
                         str("tensor ", e.name, ": shape x dtype is ", *size,
                             " bytes, but its data_offsets span ", e.end_bytes - e.begin_bytes));
    }
}

void check_order(const std::vector<SafetensorsEntry>& entries,
                 std::int64_t data_bytes,
                 const std::string& path) {
    std::int64_t covered = 0;
    for (const SafetensorsEntry& e : entries) {
        if (e.begin_bytes > covered) {
            fail_safetensors(path, str("bytes ", covered, "..", e.begin_bytes,
                                       " of the data belong to no tensor (before ", e.name, ")"));
        }
        if (e.begin_bytes < covered) {
            fail_safetensors(path,
                             str("tensor ", e.name, " begins at byte ", e.begin_bytes,
                                 " and overlaps the tensor before it, which ends at ", covered));
        }
        covered = e.end_bytes;
    }
    if (covered < data_bytes) {
        fail_safetensors(path, str(data_bytes - covered, " bytes follow after the last tensor"));
    }
}

}  // namespace

void fail_safetensors(const std::string& path, const std::string& reason) {
    fail("safetensors.bad", "safetensors: ", path, " is refused: ", reason,
         "; get or export the file again");
}

SafetensorsHeader parse_safetensors_header(const std::string& text,
                                           std::int64_t data_bytes,
                                           const std::string& path) {
    SafetensorsHeader header;
    HeaderReader reader(path, header);
    Json::sax_parse(text, &reader);
    for (const SafetensorsEntry& entry : header.entries)
        check_entry(entry, data_bytes, path);
    std::sort(header.entries.begin(), header.entries.end(),
              [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                  return std::tie(a.begin_bytes, a.end_bytes, a.name) <
                         std::tie(b.begin_bytes, b.end_bytes, b.name);
              });
    check_order(header.entries, data_bytes, path);
    return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header, const std::string& path) {
    Json root = Json::object();
    if (!header.metadata.empty()) root["__metadata__"] = header.metadata;
    for (const SafetensorsEntry& e : header.entries) {
        const bool usable = !e.name.empty() && e.name.find('\0') == std::string::npos;
        ENSURE(usable && !root.contains(e.name), "safetensors.write", "safetensors: ", path,
               ": tensor name \"", e.name, "\" is empty, holds a NUL, or is there twice");
        root[e.name] = {
            {"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {e.begin_bytes, e.end_bytes}}};
    }
    std::string text;
    try {
        text = root.dump();
    } catch (const Json::exception&) {
        fail("safetensors.write", "safetensors: ", path, ": a name or metadata is not UTF-8");
    }
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
}

}  // namespace ingot
