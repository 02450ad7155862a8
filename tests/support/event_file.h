// A strict reader of TensorBoard event files, for tests: checks both checksums of every record,
// reads scalars, and says where and why it stopped. Written from the format, not from our writer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::test {

struct EventScalar {
    std::int64_t step;
    std::string tag;
    float value;
};

struct EventFile {
    std::string file_version;
    std::vector<EventScalar> scalars;
    std::vector<double> wall_times_s;               // of every event
    std::vector<std::int64_t> session_start_steps;  // START session logs
    int num_records = 0;
    std::string problem;  // "" = read to its end; else "torn tail ...", "bad length checksum ..."
};

EventFile read_event_file(const std::string& path);

// The scalars of several files of one run in order, with those dropped that a START log voids.
std::vector<EventScalar> merged_scalars(const std::vector<EventFile>& files);

}  // namespace ingot::test
