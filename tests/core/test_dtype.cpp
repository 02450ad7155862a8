// Goal: bf16 rounding is to nearest, ties to even. Method: all 2^16 values and hand-made ties.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "engine/core/dtype.h"

using namespace ingot;

TEST_CASE("bf16: every value survives the way to float and back") {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const bf16 value{static_cast<std::uint16_t>(bits)};
        const float wide = to_float(value);
        const bf16 back = to_bf16(wide);
        if (std::isnan(wide) ? !std::isnan(to_float(back)) : back.bits != value.bits) ++wrong;
    }
    CHECK(wrong == 0);
}

TEST_CASE("bf16: rounding is to nearest with ties to even") {
    const float ulp = 0x1.0p-7F;  // of numbers in [1, 2)
    CHECK(to_float(to_bf16(1.0F + 0.49F * ulp)) == 1.0F);
    CHECK(to_float(to_bf16(1.0F + 0.50F * ulp)) == 1.0F);  // tie, 1.0 is even
    CHECK(to_float(to_bf16(1.0F + 0.51F * ulp)) == 1.0F + ulp);
    CHECK(to_float(to_bf16(1.0F + 1.50F * ulp)) == 1.0F + 2.0F * ulp);  // tie, upward
    CHECK(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
    CHECK(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("dtype: names and sizes belong together, an unknown name is refused") {
    CHECK(size_of(dtype_from_name("bf16")) == 2);
    CHECK(size_of(dtype_from_name("f32")) == 4);
    CHECK_THROWS_WITH_AS(dtype_from_name("fp8"),
                         "dtype \"fp8\" is unknown; use f32, bf16, i32 or u8", Error);
}
