// TensorBoard event files, written without TensorBoard.
//
// A file is a sequence of records: length (8 bytes LE), masked CRC32C of the length, an Event
// message (protocol buffer, encoded by hand), masked CRC32C of the message. The first event holds
// file_version "brain.Event:2". A run that goes on from a checkpoint starts a new file with a START
// session log at its first step, so that readers drop the points of steps that are done again; a
// file is never appended to by a second process. Each event is one write(2): after kill -9 the file
// can be read up to the last complete record. Errors: file.*.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/file.h"

namespace ingot {

// CRC32C (Castagnoli) of the bytes, and the format's rotated and offset form of it.
std::uint32_t crc32c(const void* data, std::size_t count_bytes);
std::uint32_t masked_crc32c(const void* data, std::size_t count_bytes);

struct TensorBoardScalar {
    const char* tag;  // "loss/train"
    double value;     // stored as a float
};

class TensorBoardWriter {
  public:
    // Makes FOLDER/events.out.tfevents.SECONDS.HOST.PID.N, N the first number that is free.
    // first_step: the first step that this process will do, 1 in a new run.
    TensorBoardWriter(const std::string& folder, std::int64_t first_step);

    const std::string& path() const { return file_.path(); }
    void write(std::int64_t step, const std::vector<TensorBoardScalar>& scalars);
    // With the wall time given, in seconds since 1970; write() uses the present.
    void write_at(double wall_time_s,
                  std::int64_t step,
                  const std::vector<TensorBoardScalar>& scalars);
    void sync();  // to the disk; a killed process needs none

  private:
    void append_record(const std::string& event);

    AppendFile file_;
};

}  // namespace ingot
