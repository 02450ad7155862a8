#include <algorithm>
#include <utility>

#include "engine/core/check.h"
#include "engine/core/dtype.h"
#include "engine/train/safetensors.h"
#include "engine/train/safetensors_header.h"

namespace ingot {
namespace {

// Largest elements first, else in the order given, so that every tensor starts at a multiple of its
// element size.
void lay_out(std::vector<SafetensorsEntry>& entries) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                         return safetensors_size_of(a.dtype) > safetensors_size_of(b.dtype);
                     });
    std::int64_t end = 0;
    for (SafetensorsEntry& e : entries) {
        for (const std::int64_t dim : e.shape) {
            ENSURE(dim >= 0, "safetensors.write", "safetensors: tensor ", e.name,
                   " has the dimension ", dim);
        }
        e.begin_bytes = end;
        e.end_bytes = end += e.numel() * safetensors_size_of(e.dtype);
    }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), entries_(std::move(entries)) {
    lay_out(entries_);
    const std::string header = format_safetensors_header({entries_, metadata}, path);
    const auto length = static_cast<std::uint64_t>(header.size());
    file_.write(0, &length, sizeof(length));
    file_.write(8, header.data(), static_cast<std::int64_t>(header.size()));
    data_begin_bytes_ = 8 + static_cast<std::int64_t>(header.size());
    for (std::size_t i = 0; i < entries_.size(); ++i)
        slots_[entries_[i].name] = {i, 0};
}

SafetensorsWriter::Slot& SafetensorsWriter::slot(const std::string& name) {
    const auto found = slots_.find(name);
    ENSURE(found != slots_.end(), "safetensors.missing_tensor", "safetensors: ", file_.path(),
           ": tensor ", name, " was not announced");
    return found->second;
}

void SafetensorsWriter::write_raw(const std::string& name,
                                  std::int64_t begin,
                                  std::int64_t count,
                                  const void* data) {
    Slot& target = slot(name);
    const SafetensorsEntry& e = entries_[target.entry];
    const std::int64_t numel = e.numel();
    ENSURE(begin >= 0 && count >= 0 && begin <= numel && count <= numel - begin,
           "safetensors.range", "safetensors: ", file_.path(), ": elements ", begin, " + ", count,
           " of tensor ", name, ", which has ", numel);
    const std::int64_t element_bytes = safetensors_size_of(e.dtype);
    file_.write(data_begin_bytes_ + e.begin_bytes + begin * element_bytes, data,
                count * element_bytes);
    target.written_elements += count;
}

void SafetensorsWriter::write(const std::string& name, const void* data, std::int64_t size_bytes) {
    const SafetensorsEntry& e = entries_[slot(name).entry];
    ENSURE(size_bytes == e.end_bytes - e.begin_bytes, "safetensors.range",
           "safetensors: ", file_.path(), ": ", size_bytes, " bytes for tensor ", name,
           ", which has ", e.end_bytes - e.begin_bytes);
    write_raw(name, 0, e.numel(), data);
}

void SafetensorsWriter::write_f32(const std::string& name,
                                  std::int64_t begin,
                                  std::int64_t count,
                                  const float* data) {
    const SafetensorsEntry& e = entries_[slot(name).entry];
    if (e.dtype == "F32") return write_raw(name, begin, count, data);
    ENSURE(e.dtype == "BF16", "safetensors.dtype", "safetensors: ", file_.path(), ": tensor ", name,
           " is ", e.dtype, ", fp32 values can be written as F32 or BF16");
    constexpr std::int64_t kChunkElements = 1 << 16;
    std::vector<bf16> chunk(
        static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kChunkElements)));
    for (std::int64_t done = 0; done < count; done += kChunkElements) {
        const std::int64_t n = std::min(kChunkElements, count - done);
        std::transform(data + done, data + done + n, chunk.begin(), to_bf16);
        write_raw(name, begin + done, n, chunk.data());
    }
}

void SafetensorsWriter::finish() {
    for (const auto& [name, target] : slots_) {
        const std::int64_t numel = entries_[target.entry].numel();
        ENSURE(target.written_elements == numel, "safetensors.incomplete",
               "safetensors: ", file_.path(), ": ", target.written_elements, " elements of tensor ",
               name, " were written, it has ", numel);
    }
    file_.commit();
}

}  // namespace ingot
