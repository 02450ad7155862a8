#include "engine/train/tensorboard.h"

#include <array>
#include <chrono>
#include <cstring>
#include <unistd.h>

#include "engine/core/check.h"

namespace ingot {
namespace {

std::array<std::uint32_t, 256> make_crc_table() {
    constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // Castagnoli, bits reversed
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit)
            crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
        table[i] = crc;
    }
    return table;
}

// ------------------------------------------------------------ protocol buffer wire format
enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
    while (value >= 128) {
        out += static_cast<char>((value & 127U) | 128U);
        value >>= 7;
    }
    out += static_cast<char>(value);
}

void put_tag(std::string& out, std::uint64_t field, Wire wire) {
    put_varint(out, (field << 3) | static_cast<std::uint64_t>(wire));
}

void put_bytes(std::string& out, std::uint64_t field, const std::string& value) {
    put_tag(out, field, Wire::bytes);
    put_varint(out, value.size());
    out += value;
}

template <class T>
void put_raw(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//         SessionLog session_log = 7; }
std::string begin_event(double wall_time_s, std::int64_t step) {
    std::string event;
    put_tag(event, 1, Wire::fixed64);
    put_raw(event, wall_time_s);
    put_tag(event, 2, Wire::varint);
    put_varint(event, static_cast<std::uint64_t>(step));
    return event;
}

double now_s() {
    const std::chrono::duration<double> since = std::chrono::system_clock::now().time_since_epoch();
    return since.count();
}

// The name has to be new, so that no file is written by two processes.
AppendFile create_event_file(const std::string& folder) {
    char host[256] = "unknown";
    ::gethostname(host, sizeof(host) - 1);
    const auto seconds = static_cast<std::int64_t>(now_s());
    for (int number = 0;; ++number) {
        const std::string path =
            str(folder, "/events.out.tfevents.", seconds, ".", host, ".", ::getpid(), ".", number);
        if (!file_exists(path)) return AppendFile(path, AppendFile::Open::create_new);
    }
}

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t count_bytes) {
    static const std::array<std::uint32_t, 256> table = make_crc_table();
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::uint32_t crc = 0xffffffffU;
    for (std::size_t i = 0; i < count_bytes; ++i) {
        crc = table[(crc ^ bytes[i]) & 255U] ^ (crc >> 8);
    }
    return crc ^ 0xffffffffU;
}

std::uint32_t masked_crc32c(const void* data, std::size_t count_bytes) {
    const std::uint32_t crc = crc32c(data, count_bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::int64_t first_step)
    : file_(create_event_file(folder)) {
    std::string version = begin_event(now_s(), 0);
    put_bytes(version, 3, "brain.Event:2");
    append_record(version);
    // SessionLog { SessionStatus status = 1 (START = 1); }
    std::string session;
    put_tag(session, 1, Wire::varint);
    put_varint(session, 1);
    std::string start = begin_event(now_s(), first_step);
    put_bytes(start, 7, session);
    append_record(start);
}

void TensorBoardWriter::write(std::int64_t step, const std::vector<TensorBoardScalar>& scalars) {
    write_at(now_s(), step, scalars);
}

void TensorBoardWriter::write_at(double wall_time_s,
                                 std::int64_t step,
                                 const std::vector<TensorBoardScalar>& scalars) {
    // Summary { repeated Value value = 1 { string tag = 1; float simple_value = 2; } }
    std::string summary;
    for (const TensorBoardScalar& scalar : scalars) {
        std::string value;
        put_bytes(value, 1, scalar.tag);
        put_tag(value, 2, Wire::fixed32);
        put_raw(value, static_cast<float>(scalar.value));
        put_bytes(summary, 1, value);
    }
    std::string event = begin_event(wall_time_s, step);
    put_bytes(event, 5, summary);
    append_record(event);
}

void TensorBoardWriter::append_record(const std::string& event) {
    std::string record;
    put_raw(record, static_cast<std::uint64_t>(event.size()));
    put_raw(record, masked_crc32c(record.data(), record.size()));
    record += event;
    put_raw(record, masked_crc32c(event.data(), event.size()));
    file_.append(record);
}

void TensorBoardWriter::sync() {
    file_.sync();
}

}  // namespace ingot
