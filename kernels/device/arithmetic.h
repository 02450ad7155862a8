// Integer arithmetic of grids and scratch, for host code of any build and for kernels: C++17.
#pragma once

#include <cstdint>

namespace ingot::cuda {

template <class Integer>
constexpr Integer ceil_div(Integer value, Integer divisor) {
    return (value + divisor - 1) / divisor;
}

}  // namespace ingot::cuda
