// Safetensors files: 8 bytes of little-endian header length, a JSON header, raw little-endian data.
//
// The reader is strict: the header is at most 100,000,000 bytes, an object, UTF-8, without
// duplicate names; every tensor has a known dtype, a shape whose product fits, offsets that agree
// with it; the tensors cover the data without hole, overlap or rest. Data may start at any offset:
// nothing is mapped, values are read with pread() and copied. A Git LFS pointer and a web page are
// named as such. Errors: safetensors.bad (file, reason), safetensors.missing_tensor,
// safetensors.dtype, safetensors.range, safetensors.index, file.*.
//
// The writer streams: sizes are known from the entries, data comes tensor by tensor or piece by
// piece in any order, and the file appears under its name only when finish() has written and synced
// all of it. (8 + header length) % 8 == 0, and tensors are laid out by descending element size, so
// that every tensor of ours is aligned to its type.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/file.h"

namespace ingot {

struct SafetensorsEntry {
    std::string name;
    std::string dtype;  // "F32", "BF16", "F16", "F64", "I32", "I64", "U8", "BOOL", ...
    std::vector<std::int64_t> shape;  // {} is a scalar: one element
    std::int64_t begin_bytes = 0;     // in the data section; set by the reader and the writer
    std::int64_t end_bytes = 0;

    std::int64_t numel() const;
};

// Bytes of one element; throws safetensors.dtype for a name the format does not have.
std::int64_t safetensors_size_of(const std::string& dtype);

class SafetensorsReader {
  public:
    explicit SafetensorsReader(const std::string& path);

    const std::string& path() const { return file_.path(); }
    const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by offset
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    const SafetensorsEntry* find(const std::string& name) const;  // nullptr when absent
    const SafetensorsEntry& entry(const std::string& name) const;

    // Elements [begin, begin + count) of the flat tensor. F32, BF16, F16 are exact, F64 is rounded.
    void read_as_f32(const std::string& name,
                     std::int64_t begin,
                     std::int64_t count,
                     float* out) const;
    // I32 and I64; an I64 value that does not fit is safetensors.range.
    void read_i32(const std::string& name,
                  std::int64_t begin,
                  std::int64_t count,
                  std::int32_t* out) const;
    // F64, or F32 widened.
    void read_as_f64(const std::string& name,
                     std::int64_t begin,
                     std::int64_t count,
                     double* out) const;
    // Raw bytes of elements [begin, begin + count).
    void read_raw(const std::string& name, std::int64_t begin, std::int64_t count, void* out) const;

  private:
    FileReader file_;
    std::int64_t data_begin_bytes_ = 0;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, std::size_t> index_by_name_;
    std::map<std::string, std::string> metadata_;
};

// The weights of a Hugging Face folder: model.safetensors.index.json and its files where there is
// an index (it wins over a model.safetensors beside it), else model.safetensors. Files of the index
// are plain names inside the folder, exist, and hold exactly the tensors that the index lists for
// them.
class SafetensorsFolder {
  public:
    explicit SafetensorsFolder(const std::string& folder);

    std::vector<std::string> names() const;  // sorted
    bool contains(const std::string& name) const;
    const SafetensorsReader& file_of(const std::string& name) const;  // throws when absent
    const SafetensorsEntry& entry(const std::string& name) const;
    void read_as_f32(const std::string& name,
                     std::int64_t begin,
                     std::int64_t count,
                     float* out) const;

  private:
    std::string folder_;
    std::vector<std::unique_ptr<SafetensorsReader>> files_;
    std::map<std::string, const SafetensorsReader*> file_by_name_;
};

class SafetensorsWriter {
  public:
    // Only name, dtype and shape of the entries are read. The file is written as PATH.partial.
    SafetensorsWriter(const std::string& path,
                      std::vector<SafetensorsEntry> entries,
                      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

    const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by offset

    // A whole tensor in its own dtype; size_bytes must be the tensor's.
    void write(const std::string& name, const void* data, std::int64_t size_bytes);
    // Elements [begin, begin + count), rounded to the entry's dtype: F32 or BF16.
    void write_f32(const std::string& name,
                   std::int64_t begin,
                   std::int64_t count,
                   const float* data);
    // Raw bytes of elements [begin, begin + count).
    void write_raw(const std::string& name,
                   std::int64_t begin,
                   std::int64_t count,
                   const void* data);
    // Syncs and renames. Throws safetensors.incomplete when elements were not written, or written
    // twice (counted, not mapped). Without finish() the destructor removes the partial file.
    void finish();

  private:
    struct Slot {
        std::size_t entry;
        std::int64_t written_elements;
    };
    Slot& slot(const std::string& name);

    AtomicFile file_;
    std::int64_t data_begin_bytes_ = 0;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, Slot> slots_;
};

}  // namespace ingot
