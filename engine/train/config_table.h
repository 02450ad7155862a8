// The table of configuration keys, typed. For config*.cpp and cli.cpp; everybody else uses
// config.h.
//
// Also the names that are no keys of this release: keys of the command-line contract that come
// later, and what other trainers call our keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/train/config.h"

namespace ingot {

struct ConfigKey {
    enum class Kind { boolean, integer, real, word, text };

    const char* name;  // "section.key"
    Kind kind;
    const char* help;

    // Exactly the one of the kind is set.
    bool* (*boolean)(TrainConfig&) = nullptr;
    std::int64_t* (*integer)(TrainConfig&) = nullptr;
    double* (*real)(TrainConfig&) = nullptr;
    std::string* (*text)(TrainConfig&) = nullptr;
    int (*get_word)(const TrainConfig&) = nullptr;  // index into words
    void (*set_word)(TrainConfig&, int) = nullptr;

    // Limits of integer and real; integers are exact in a double (|limit| <= 2^53).
    double minimum = 0;
    double maximum = 0;
    bool minimum_open = false;
    bool maximum_open = false;
    const char* zero_word = nullptr;  // integer: how 0 is spelled; the range excludes 0 then
    std::vector<const char*> words{};
    const char* text_allowed = nullptr;
    const char* later = nullptr;  // word: why another value is not in this release
};

const std::vector<ConfigKey>& config_table();
const ConfigKey* find_config_key(const std::string& name);  // nullptr when unknown
std::string allowed_values(const ConfigKey& key);           // "1..65536", "0 < value <= 10"

// A key of the contract that this release does not have. Values that ask for nothing are accepted.
struct LaterKey {
    const char* name;
    std::vector<const char*> accepted;
    const char* instead;  // what to do
};
const std::vector<LaterKey>& later_keys();
const LaterKey* find_later_key(const std::string& name);

// Throws config.not_in_release or config.unknown_key for a name that is no key. `place` is
// "run.json:7" or "command line"; `value` as it was written.
[[noreturn]] void fail_unknown_key(const std::string& place,
                                   const std::string& name,
                                   const std::string& value);
// The key that differs least from the name: by the number of inserted, deleted or changed letters
// of the whole name, or of its last part plus one for another section.
std::string nearest_config_key(const std::string& name);

}  // namespace ingot
