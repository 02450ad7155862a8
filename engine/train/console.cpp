#include "engine/train/console.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/core/check.h"

namespace ingot {
namespace {

std::string pad_left(const std::string& text, std::size_t width) {
    return text.size() >= width ? text : str(std::string(width - text.size(), ' '), text);
}

std::string pad_right(const std::string& text, std::size_t width) {
    return text.size() >= width ? text : str(text, std::string(width - text.size(), ' '));
}

std::string special(double value) {
    if (std::isnan(value)) return "nan";
    return value > 0 ? "inf" : "-inf";
}

// Words for what is not finite; else `digits` after the point, or significant ones (general).
std::string to_text(double value, std::chars_format format, int digits) {
    if (!std::isfinite(value)) return special(value);
    char text[400];  // the largest double has 309 digits before the point
    const auto end = std::to_chars(text, text + sizeof(text), value, format, digits).ptr;
    return std::string(text, end);
}

std::string fixed(double value, int digits) {
    return to_text(value, std::chars_format::fixed, digits);
}

std::string scientific(double value, int digits) {
    return to_text(value, std::chars_format::scientific, digits);
}

std::string two_digits(std::int64_t value) {
    return str(value < 10 ? "0" : "", value);
}

// As many digits after the point as fit into `width`; the exponent form for what is larger.
std::string fit(double value, std::size_t width, int digits) {
    for (int d = digits; d >= 0; --d) {
        const std::string text = fixed(value, d);
        if (text.size() <= width) return pad_left(text, width);
    }
    return pad_left(scientific(value, 0), width);
}

std::string percent(double fraction, std::size_t width) {
    if (!(fraction >= 0)) return pad_left("-", width);
    if (fraction >= 10) return pad_left(">999%", width);
    return str(fit(100 * fraction, width - 1, 1), "%");
}

std::string section_of(const std::string& name) {
    return name.substr(0, name.find('.'));
}

}  // namespace

std::string format_count(std::int64_t value) {
    const std::string digits = std::to_string(value);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        const bool group_begins = i > 0 && (digits.size() - i) % 3 == 0;
        if (group_begins && digits[i - 1] != '-') out += ',';
        out += digits[i];
    }
    return out;
}

std::string format_number(double value) {
    return to_text(value, std::chars_format::general, 4);
}

std::string format_bytes(std::int64_t bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    if (bytes < 0) return str("-", format_bytes(bytes < -kLargest ? kLargest : -bytes));
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    // 1023.995 of a unit would be shown as 1024.
    while (value >= 1023.95 && unit < 6) {
        value /= 1024;
        ++unit;
    }
    if (unit == 0) return str(bytes, " B");
    const int digits = value < 99.995 ? 2 : 1;
    return str(fixed(value, digits), " ", kUnits[unit]);
}

std::string format_duration(double seconds) {
    if (!(seconds >= 0) || !std::isfinite(seconds)) return "-";
    if (seconds < 9.95) return str(fixed(seconds, 1), " s");
    const std::int64_t total = std::llround(std::min(seconds, 9e15));
    const std::int64_t minutes = total / 60, hours = total / 3600, days = total / 86400;
    if (minutes == 0) return str(total, " s");
    if (hours == 0) return str(minutes, " m ", two_digits(total % 60), " s");
    if (days == 0) return str(hours, " h ", two_digits(minutes % 60), " m");
    if (days >= 100) return str(days, " d");
    return str(days, " d ", two_digits(hours % 24), " h");
}

std::string format_step(const StepLine& line) {
    const std::string total = std::to_string(line.total_steps);
    const double tokens_per_s =
        std::isfinite(line.tokens_per_s) ? std::clamp(line.tokens_per_s, 0.0, 9e15) : 0.0;
    return str("step ", pad_left(std::to_string(line.step), total.size()), "/", total,  //
               "  loss ", fit(line.loss, 6, 4),                                         //
               "  norm ", fit(line.grad_norm, 6, 3),                                    //
               "  lr ", pad_left(scientific(line.lr, 2), 8),                            //
               "  ", fit(line.step_ms, 6, 1), " ms",                                    //
               "  ", pad_left(format_count(std::llround(tokens_per_s)), 9), " tok/s",   //
               "  mfu ", percent(line.mfu, 5),                                          //
               "  wait ", percent(line.data_wait_fraction, 5),                          //
               "  eta ", pad_left(format_duration(line.eta_s), 9));
}

std::string format_config(const TrainConfig& config) {
    const std::vector<ConfigKeyInfo> keys = config_keys();
    std::size_t width = 0;
    for (const ConfigKeyInfo& key : keys)
        width = std::max(width, key.name.size());
    std::string out = "configuration (* differs from the default)\n";
    std::string section;
    for (const ConfigKeyInfo& key : keys) {
        const std::string value = config_value(config, key.name);
        if (section_of(key.name) != section) {
            section = section_of(key.name);
            out += str("  ", section, "\n");
        }
        std::string shown = value.empty() ? "\"\"" : "";
        for (const char c : value) {  // a prompt stays on its line
            if (c == '\n') shown += '\\';
            shown += c == '\n' ? 'n' : c;
        }
        out += str(value == key.initial ? "    " : "  * ", pad_right(key.name, width), "  ", shown,
                   "\n");
    }
    return out;
}

std::string format_phases(const std::vector<PhaseTime>& phases, double total_s) {
    std::vector<PhaseTime> rows = phases;
    double covered = 0;
    for (const PhaseTime& phase : phases)
        covered += phase.seconds;
    // Less than a tenth of a percent is rounding of the clocks, not a phase.
    if (total_s - covered > 1e-3 * total_s) rows.push_back({"other", total_s - covered});
    rows.push_back({"total", total_s});
    std::size_t width = 0;
    for (const PhaseTime& row : rows)
        width = std::max(width, row.name.size());
    std::string out = "time per phase\n";
    for (const PhaseTime& row : rows) {
        const double fraction = total_s > 0 ? row.seconds / total_s : -1;
        out += str("  ", pad_right(row.name, width), "  ",
                   pad_left(format_duration(row.seconds), 9), "  ", percent(fraction, 6), "\n");
    }
    return out;
}

}  // namespace ingot
