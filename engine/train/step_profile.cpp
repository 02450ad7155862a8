#include "engine/train/step_profile.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string fixed(double value, int width, int digits) {
    char text[64];
    std::snprintf(text, sizeof(text), "%*.*f", width, digits, value);
    return text;
}

// Of a rate per second: amounts of `unit` in ms; "-" where there is nothing to count.
std::string rate(double amount, double ms, double unit, int width) {
    if (amount <= 0.0 || ms <= 0.0)
        return std::string(static_cast<std::size_t>(width) - 1, ' ') + "-";
    return fixed(amount / (ms * 1e-3) / unit, width, 1);
}

std::string row(const std::string& name, std::size_t width, const std::string& rest) {
    return "  " + name + std::string(width - name.size(), ' ') + rest + "\n";
}

}  // namespace

double StepProfile::unexplained_ms() const {
    double rest = step_ms;
    for (const OpPart& part : parts)
        rest -= part.ms;
    return rest;
}

std::string to_json(const StepProfile& profile) {
    Json parts = Json::array();
    for (const OpPart& part : profile.parts) {
        parts.push_back({{"name", part.name},
                         {"calls", part.calls},
                         {"ms", part.ms},
                         {"bytes", part.bytes},
                         {"flops", part.flops},
                         {"dtype", name_of(part.dtype)}});
    }
    const Json object = {{"step", profile.step},
                         {"step_ms", profile.step_ms},
                         {"parts", parts},
                         {"unexplained_ms", profile.unexplained_ms()}};
    return object.dump(1) + "\n";
}

std::string format_profile(const StepProfile& profile) {
    constexpr const char* kUnexplained = "(no op)";
    const auto share = [&](double ms) {
        return profile.step_ms > 0.0 ? fixed(100.0 * ms / profile.step_ms, 6, 1) + "%" : "      -";
    };
    std::size_t width = std::string(kUnexplained).size();
    for (const OpPart& part : profile.parts)
        width = std::max(width, part.name.size());
    std::string out = str("profile of step ", profile.step, ", ", fixed(profile.step_ms, 1, 3),
                          " ms (events around every op make it a little longer)\n");
    out += row("op", width, " dtype   calls         ms   share      GB/s   TFLOP/s");
    for (const OpPart& part : profile.parts) {
        std::string dtype = name_of(part.dtype);
        dtype.resize(5, ' ');
        out += row(part.name, width,
                   str(" ", dtype, " ", fixed(static_cast<double>(part.calls), 7, 0),
                       fixed(part.ms, 11, 3), " ", share(part.ms),
                       rate(static_cast<double>(part.bytes), part.ms, 1e9, 10),
                       rate(part.flops, part.ms, 1e12, 10)));
    }
    out += row(kUnexplained, width,
               std::string(14, ' ') + fixed(profile.unexplained_ms(), 11, 3) + " " +
                   share(profile.unexplained_ms()));
    return out;
}

}  // namespace ingot
