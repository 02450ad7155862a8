// The table behind kernels/matmul_plan.h: which shape takes which algorithm, and its text. Knows
// nothing of CUDA: an algorithm is the 64 bytes that cuBLASLt lets its users store.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "engine/core/dtype.h"

namespace ingot {

enum class MatmulPass { forward, dgrad, wgrad };
enum class MatmulEpilogue { none, bias, gelu, gelu_bias, dgelu };

// Everything that a choice of algorithm depends on.
struct MatmulKey {
    MatmulPass pass;
    MatmulEpilogue epilogue;
    DType operand;    // of inputs
    DType result;     // of the output
    bool accumulate;  // += instead of =
    int alignment;    // bytes that every pointer is a multiple of: 16, 8, 4 or 2
    std::int64_t N, C, OC;

    auto tied() const {
        return std::make_tuple(pass, epilogue, operand, result, accumulate, alignment, N, C, OC);
    }
    bool operator<(const MatmulKey& other) const { return tied() < other.tied(); }
    std::string text() const;  // "forward bias bf16 bf16 set 16 65536 768 2304"
};

struct MatmulChoice {
    bool is_general = false;  // the engine's tiled kernel instead of cuBLASLt
    bool is_chosen = false;   // by timing or by an imported text, not by the heuristic
    std::array<std::uint64_t, 8> algorithm{};
    double us = 0.0;  // median of the timed runs, 0 when not timed
};

using MatmulChoices = std::map<MatmulKey, MatmulChoice>;

// What the choices are valid for.
struct MatmulOrigin {
    std::string library;  // "cublasLt 130100"
    std::string gpu;      // "NVIDIA H200"
};

std::string format_matmul_plans(const MatmulOrigin& origin, const MatmulChoices& choices);

// The inverse. Throws matmul.plan_format, or matmul.plan_device when the text is of another origin.
MatmulChoices parse_matmul_plans(const MatmulOrigin& origin, const std::string& text);

}  // namespace ingot
