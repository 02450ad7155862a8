// What a run shows on the console, as pure functions from values to text. Columns have fixed widths
// for every value that can occur, so lines stay under each other; nothing is coloured. Values that
// are not known (a negative MFU, an ETA before the second step) show "-".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/train/config.h"

namespace ingot {

struct StepLine {
    std::int64_t step = 0;
    std::int64_t total_steps = 0;
    double loss = 0;
    double grad_norm = 0;
    double lr = 0;
    double step_ms = 0;
    double tokens_per_s = 0;
    double mfu = -1;                // model FLOP/s over the device's peak, 0 .. 1; < 0 unknown
    double data_wait_fraction = 0;  // of the step's time, 0 .. 1
    double eta_s = -1;              // < 0 unknown
};

// "step  120/1000  loss 3.4567  norm  0.812  lr 2.95e-03   812.3 ms      2,522 tok/s  mfu ..."
std::string format_step(const StepLine& line);

// The configuration, a section a block, values that differ from the default marked with '*'.
std::string format_config(const TrainConfig& config);

struct PhaseTime {
    std::string name;  // "forward"
    double seconds = 0;
};
// Time per phase with its part of the whole; what the phases do not cover is the line "other".
std::string format_phases(const std::vector<PhaseTime>& phases, double total_s);

std::string format_duration(double seconds);   // "47 s", "12 m 05 s", "3 h 07 m", "2 d 04 h"
std::string format_bytes(std::int64_t bytes);  // "812 B", "1.50 MiB", "139.0 GiB"
std::string format_count(std::int64_t value);  // "1,234,567"
std::string format_number(double value);       // 4 significant digits, "nan" and "inf" in words

}  // namespace ingot
