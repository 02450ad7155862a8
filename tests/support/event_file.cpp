#include "tests/support/event_file.h"

#include <algorithm>
#include <cstring>

#include "engine/core/check.h"
#include "tests/support/temp_folder.h"

namespace ingot::test {
namespace {

// CRC32C bit by bit, then rotated and offset as the format asks.
std::uint32_t checksum(const char* data, std::size_t count) {
    std::uint32_t crc = ~0U;
    for (std::size_t i = 0; i < count; ++i) {
        crc ^= static_cast<unsigned char>(data[i]);
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
        }
    }
    crc = ~crc;
    return (crc << 17 | crc >> 15) + 0xa282ead8U;
}

template <class T>
T raw(const char* data) {
    T value;
    std::memcpy(&value, data, sizeof(T));
    return value;
}

struct Field {
    std::uint64_t number;
    std::uint64_t integer = 0;  // varint
    std::string bytes;          // everything else
};

std::uint64_t take_varint(const std::string& text, std::size_t& at) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const auto byte = static_cast<unsigned char>(text.at(at++));
        value |= static_cast<std::uint64_t>(byte & 127U) << shift;
        if (byte < 128) return value;
    }
    fail("test.event_file", "a varint has more than 10 bytes");
}

std::vector<Field> fields_of(const std::string& message) {
    std::vector<Field> fields;
    for (std::size_t at = 0; at < message.size();) {
        const std::uint64_t key = take_varint(message, at);
        Field field{key >> 3, 0, ""};
        const std::uint64_t wire = key & 7U;
        if (wire == 0) {
            field.integer = take_varint(message, at);
        } else {
            ENSURE(wire == 1 || wire == 2 || wire == 5, "test.event_file", "wire type ", wire);
            const std::size_t size = wire == 1 ? 8 : wire == 5 ? 4 : take_varint(message, at);
            ENSURE(size <= message.size() - at, "test.event_file", "a field ends past its message");
            field.bytes = message.substr(at, size);
            at += size;
        }
        fields.push_back(field);
    }
    return fields;
}

void read_event(const std::string& message, EventFile& file) {
    std::int64_t step = 0;
    for (const Field& field : fields_of(message)) {
        if (field.number == 1) file.wall_times_s.push_back(raw<double>(field.bytes.data()));
        if (field.number == 2) step = static_cast<std::int64_t>(field.integer);
        if (field.number == 3) file.file_version = field.bytes;
        if (field.number == 5) {
            for (const Field& value : fields_of(field.bytes)) {
                EventScalar scalar{step, "", 0};
                for (const Field& part : fields_of(value.bytes)) {
                    if (part.number == 1) scalar.tag = part.bytes;
                    if (part.number == 2) scalar.value = raw<float>(part.bytes.data());
                }
                file.scalars.push_back(scalar);
            }
        }
        if (field.number == 7) {
            for (const Field& status : fields_of(field.bytes)) {
                if (status.number == 1 && status.integer == 1) {
                    file.session_start_steps.push_back(step);
                }
            }
        }
    }
}

}  // namespace

EventFile read_event_file(const std::string& path) {
    EventFile file;
    const std::string text = read_all(path);
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t left = text.size() - at;
        const char* record = text.data() + at;
        if (left < 12) {
            file.problem = str("torn tail: ", left, " bytes of a record's head");
            return file;
        }
        if (raw<std::uint32_t>(record + 8) != checksum(record, 8)) {
            file.problem = str("bad length checksum at byte ", at);
            return file;
        }
        const auto length = raw<std::uint64_t>(record);
        if (left < 16 + length) {
            file.problem = str("torn tail: ", left, " bytes of a record of ", 16 + length);
            return file;
        }
        if (raw<std::uint32_t>(record + 12 + length) != checksum(record + 12, length)) {
            file.problem = str("bad data checksum at byte ", at);
            return file;
        }
        read_event(std::string(record + 12, length), file);
        ++file.num_records;
        at += 16 + length;
    }
    return file;
}

std::vector<EventScalar> merged_scalars(const std::vector<EventFile>& files) {
    std::vector<EventScalar> merged;
    for (const EventFile& file : files) {
        for (const std::int64_t start : file.session_start_steps) {
            merged.erase(std::remove_if(merged.begin(), merged.end(),
                                        [start](const EventScalar& s) { return s.step >= start; }),
                         merged.end());
        }
        merged.insert(merged.end(), file.scalars.begin(), file.scalars.end());
    }
    return merged;
}

}  // namespace ingot::test
