#include "engine/train/config.h"

#include <charconv>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "engine/core/check.h"
#include "engine/core/file.h"
#include "engine/train/config_json.h"
#include "engine/train/config_table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ConfigKey::Kind;

// A value on its way to a key, with what messages need.
struct Setting {
    const ConfigKey& key;
    std::string place;  // "run.json:7" or "command line"
    std::string shown;  // the value as it was written, shortened
};

[[noreturn]] void fail_setting(const Setting& s, const char* code, const std::string& fix = "") {
    fail(code, "config: ", s.place, ": ", s.key.name, " = ", s.shown, ", allowed is ",
         allowed_values(s.key), "; ", fix.empty() ? s.key.help : fix);
}

void set_integer(TrainConfig& config, const Setting& s, std::int64_t value) {
    const bool inside =
        static_cast<double>(value) >= s.key.minimum && static_cast<double>(value) <= s.key.maximum;
    if (!inside) fail_setting(s, "config.range");
    *s.key.integer(config) = value;
}

void set_real(TrainConfig& config, const Setting& s, double value) {
    const bool above = s.key.minimum_open ? value > s.key.minimum : value >= s.key.minimum;
    const bool below = s.key.maximum_open ? value < s.key.maximum : value <= s.key.maximum;
    if (!(std::isfinite(value) && above && below)) fail_setting(s, "config.range");
    *s.key.real(config) = value;
}

// Words, text, and the word of an integer's 0.
void set_string(TrainConfig& config, const Setting& s, const std::string& value) {
    if (s.key.kind == Kind::text) {
        if (value.find('\0') != std::string::npos) {
            fail_setting(s, "config.range", "a character of value 0 has no place in it");
        }
        *s.key.text(config) = value;
        return;
    }
    if (s.key.kind == Kind::integer && s.key.zero_word != nullptr && value == s.key.zero_word) {
        *s.key.integer(config) = 0;
        return;
    }
    if (s.key.kind != Kind::word) {
        fail_setting(s, "config.type",
                     str("a string was given where it takes ",
                         s.key.kind == Kind::boolean ? "true or false" : "a number",
                         "; write it without quotes"));
    }
    for (std::size_t i = 0; i < s.key.words.size(); ++i) {
        if (value == s.key.words[i]) return s.key.set_word(config, static_cast<int>(i));
    }
    fail_setting(s, "config.word", s.key.later == nullptr ? "" : s.key.later);
}

void set_from_json(TrainConfig& config, const Setting& s, const Json& value) {
    if (value.is_string()) return set_string(config, s, value.get<std::string>());
    switch (s.key.kind) {
        case Kind::boolean:
            if (!value.is_boolean()) break;
            *s.key.boolean(config) = value.get<bool>();
            return;
        case Kind::integer:
            if (!value.is_number_integer()) break;
            // An unsigned value past the signed range would turn negative.
            if (value.is_number_unsigned() && value.get<std::uint64_t>() > (1ULL << 62)) {
                fail_setting(s, "config.range");
            }
            return set_integer(config, s, value.get<std::int64_t>());
        case Kind::real:
            if (!value.is_number()) break;
            return set_real(config, s, value.get<double>());
        case Kind::word:
        case Kind::text:
            break;
    }
    fail_setting(s, "config.type", str("a JSON ", value.type_name(), " was given"));
}

void set_from_text(TrainConfig& config, const Setting& s, const std::string& text) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    switch (s.key.kind) {
        case Kind::boolean:
            if (text != "true" && text != "false") break;
            *s.key.boolean(config) = text == "true";
            return;
        case Kind::integer: {
            if (s.key.zero_word != nullptr && text == s.key.zero_word) {
                *s.key.integer(config) = 0;
                return;
            }
            std::int64_t value = 0;
            const auto [stop, error] = std::from_chars(begin, end, value);
            if (error == std::errc::result_out_of_range) fail_setting(s, "config.range");
            if (error != std::errc() || stop != end) break;
            return set_integer(config, s, value);
        }
        case Kind::real: {
            double value = 0;
            const auto [stop, error] = std::from_chars(begin, end, value);
            if (error == std::errc::result_out_of_range) fail_setting(s, "config.range");
            if (error != std::errc() || stop != end) break;
            return set_real(config, s, value);
        }
        case Kind::word:
        case Kind::text:
            return set_string(config, s, text);
    }
    fail_setting(s, "config.type");
}

bool accepted_later(const std::string& name, const std::string& value) {
    const LaterKey* later = find_later_key(name);
    if (later == nullptr) return false;
    for (const char* word : later->accepted) {
        if (value == word) return true;
    }
    return false;
}

std::string shorten(const std::string& text) {
    constexpr std::size_t kLimit = 80;
    return text.size() <= kLimit ? text : text.substr(0, kLimit) + "...";
}

bool is_section(const std::string& name) {
    for (const ConfigKey& key : config_table()) {
        if (std::string(key.name).rfind(name + ".", 0) == 0) return true;
    }
    for (const LaterKey& key : later_keys()) {
        if (std::string(key.name).rfind(name + ".", 0) == 0) return true;
    }
    return false;
}

void read_section(TrainConfig& config,
                  const std::string& section,
                  const Json& values,
                  const JsonPlaces& places) {
    for (const auto& [last, value] : values.items()) {
        const std::string name = str(section, ".", last);
        const std::string shown =
            shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace));
        const std::string word = value.is_string() ? value.get<std::string>() : shown;
        const ConfigKey* key = find_config_key(name);
        if (key != nullptr) {
            set_from_json(config, {*key, places.of(section, last), shown}, value);
        } else if (!accepted_later(name, word)) {
            fail_unknown_key(places.of(section, last), name, shown);
        }
    }
}

Json value_as_json(const TrainConfig& config, const ConfigKey& key) {
    TrainConfig copy = config;  // the accessors take a mutable configuration
    switch (key.kind) {
        case Kind::boolean:
            return *key.boolean(copy);
        case Kind::integer:
            if (key.zero_word != nullptr && *key.integer(copy) == 0) return key.zero_word;
            return *key.integer(copy);
        case Kind::real:
            return *key.real(copy);
        case Kind::word:
            return key.words.at(static_cast<std::size_t>(key.get_word(copy)));
        case Kind::text:
            break;
    }
    return *key.text(copy);
}

}  // namespace

void read_config_text(const std::string& text, const std::string& path, TrainConfig& config) {
    const Json root = parse_json(text, path);
    const JsonPlaces places(text, path);
    ENSURE(root.is_object(), "config.json", "config: ", path, ": the file holds a JSON ",
           root.type_name(),
           ", needed is an object of sections, e.g. {\"train\": {\"steps\": 100}}");
    for (const auto& [section, values] : root.items()) {
        const std::string shown =
            shorten(values.dump(-1, ' ', false, Json::error_handler_t::replace));
        if (!is_section(section)) {
            // "train.steps" at the top is a flat spelling of a key that exists.
            ENSURE(find_config_key(section) == nullptr, "config.unknown_key",
                   "config: ", places.of("", section), ": ", section, " = ", shown,
                   " is outside its section; write {\"", section.substr(0, section.find('.')),
                   "\": {\"", section.substr(section.find('.') + 1), "\": ", shown, "}}");
            fail_unknown_key(places.of("", section), section, shown);
        }
        ENSURE(values.is_object(), "config.type", "config: ", places.of("", section), ": ", section,
               " = ", shown, " is a JSON ", values.type_name(), ", needed is an object of keys");
        read_section(config, section, values, places);
    }
}

TrainConfig read_config_file(const std::string& path) {
    ENSURE(file_exists(path), "config.missing_file", "config: there is no file ", path,
           "; `make run` writes run.json with a complete example, or give another file: "
           "./train_gpt FILE.json");
    constexpr std::int64_t kLimitBytes = 16 << 20;
    TrainConfig config;
    read_config_text(read_text_file(path, kLimitBytes), path, config);
    return config;
}

void apply_override(TrainConfig& config, const std::string& assignment) {
    const std::string place = "command line";
    const std::size_t begin = assignment.rfind("--", 0) == 0 ? 2 : 0;
    const std::size_t equals = assignment.find('=');
    ENSURE(equals != std::string::npos && equals > begin, "config.command_line", "config: ", place,
           ": ", assignment, " is not a setting; write --section.key=value");
    const std::string name = assignment.substr(begin, equals - begin);
    const std::string value = assignment.substr(equals + 1);
    const ConfigKey* key = find_config_key(name);
    if (key != nullptr) {
        set_from_text(config, {*key, place, value.empty() ? "\"\"" : shorten(value)}, value);
    } else if (!accepted_later(name, value)) {
        fail_unknown_key(place, name, shorten(value));
    }
}

std::vector<ConfigKeyInfo> config_keys() {
    std::vector<ConfigKeyInfo> rows;
    for (const ConfigKey& key : config_table()) {
        rows.push_back(
            {key.name, allowed_values(key), config_value(TrainConfig(), key.name), key.help});
    }
    return rows;
}

std::string config_value(const TrainConfig& config, const std::string& name) {
    const ConfigKey* key = find_config_key(name);
    if (key == nullptr) fail_unknown_key("config_value", name, "?");
    const Json value = value_as_json(config, *key);
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string dump_config(const TrainConfig& config) {
    Json root = Json::object();
    for (const ConfigKey& key : config_table()) {
        const std::string name = key.name;
        const std::size_t dot = name.find('.');
        root[name.substr(0, dot)][name.substr(dot + 1)] = value_as_json(config, key);
    }
    return root.dump(4, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ingot
