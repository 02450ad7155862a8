// Element types. bf16 is stored as its 16 bits and computed with in fp32; conversion to bf16 rounds
// to nearest, ties to even, and keeps NaN a (quiet) NaN. Included by .cu files: C++17.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/core/check.h"

namespace ingot {

enum class DType : std::uint8_t { f32, bf16, i32, u8 };

const char* name_of(DType dtype);         // "f32", "bf16", ...
std::int64_t size_of(DType dtype);        // bytes of one element
DType dtype_from_name(const char* name);  // throws dtype.unknown

struct bf16 {
    std::uint16_t bits;
};

inline float to_float(float value) {
    return value;
}

inline float to_float(bf16 value) {
    const std::uint32_t wide = static_cast<std::uint32_t>(value.bits) << 16;
    float result;
    std::memcpy(&result, &wide, sizeof(result));
    return result;
}

inline bf16 to_bf16(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    if ((wide & 0x7fffffffU) > 0x7f800000U) {  // NaN: set the quiet bit, do not round into infinity
        return {static_cast<std::uint16_t>((wide >> 16) | 0x0040U)};
    }
    const std::uint32_t round = 0x7fffU + ((wide >> 16) & 1U);
    return {static_cast<std::uint16_t>((wide + round) >> 16)};
}

// from_float<T>(x): x rounded to T.
template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
    return value;
}
template <>
inline bf16 from_float<bf16>(float value) {
    return to_bf16(value);
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::uint8_t> {
    static constexpr DType value = DType::u8;
};

// Calls f with a value of the C++ type of a floating dtype: dispatch_float(t.dtype, [&](auto zero)
// { using T = decltype(zero); ... }). The one runtime type switch of a CPU op.
template <class F>
void dispatch_float(DType dtype, F&& f) {
    if (dtype == DType::f32) {
        f(float{});
    } else if (dtype == DType::bf16) {
        f(bf16{});
    } else {
        fail("dtype.not_float", "dtype ", name_of(dtype), " where f32 or bf16 is needed");
    }
}

}  // namespace ingot
