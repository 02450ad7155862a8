// Where the time of one step went, op by op: LOG_DIR/profile.json (docs/formats.md) and a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/op_range.h"

namespace ingot {

struct StepProfile {
    std::int64_t step = 0;
    double step_ms = 0.0;
    std::vector<OpPart> parts;  // longest first

    // What no op accounts for: gaps between launches, copies, waits for data, the timing itself.
    double unexplained_ms() const;
};

std::string to_json(const StepProfile& profile);         // with a line end
std::string format_profile(const StepProfile& profile);  // a line a part, under a heading

}  // namespace ingot
