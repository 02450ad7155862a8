// JSON for people: parsing errors with file, line and a hint, the line of every key, and duplicate
// keys refused. For config.cpp. Errors: config.json, config.duplicate_key.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ingot {

nlohmann::ordered_json parse_json(const std::string& text, const std::string& path);

// Where keys are written. The text must be valid JSON; throws config.duplicate_key.
class JsonPlaces {
  public:
    JsonPlaces(const std::string& text, const std::string& path);

    // "run.json:7" for a key of an object at the top ("" is the top itself).
    std::string of(const std::string& section, const std::string& key) const;

  private:
    std::string path_;
    std::map<std::string, int> line_by_pointer_;  // JSON pointer -> line
};

}  // namespace ingot
