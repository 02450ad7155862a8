// Errors. Every failure in the engine is one exception type, thrown where the cause is known and
// caught once, in main (docs/adr/0001-one-error-type.md).
//
// A message says what, value, limit and fix, in this order:
//     layernorm_forward: weight has 3 elements but C=4; pass the weight of this layer's width
// The code ("layernorm.shape") is stable: scripts may match on it, and a translation is a table
// from codes to texts. This header is included by .cu files and stays C++17.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ingot {

class Error : public std::runtime_error {
  public:
    Error(const char* code, const std::string& message)
        : std::runtime_error(message), code_(code) {}

    // Dotted, lower case, e.g. "config.unknown_key". Points to a string literal.
    const char* code() const noexcept { return code_; }

  private:
    const char* code_;
};

// Concatenates its arguments through operator<<.
template <class... Parts>
std::string str(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const char* code, const Parts&... parts) {
    throw Error(code, str(parts...));
}

}  // namespace ingot

// ENSURE(condition, "area.code", parts...): always on; throws ingot::Error when condition is false.
// The parts are evaluated only on failure.
#define ENSURE(condition, code, ...)            \
    do {                                        \
        if (!(condition)) {                     \
            ::ingot::fail((code), __VA_ARGS__); \
        }                                       \
    } while (false)
