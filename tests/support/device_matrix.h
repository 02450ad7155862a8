// The devices and dtypes a kernel test loops over. A CUDA case runs on a machine with a GPU; on
// others it is reported as skipped, never silently passed.
#pragma once

#include <memory>
#include <vector>

#include "engine/core/device.h"

namespace ingot::test {

// CPU first; CUDA when this build holds it and the machine has a usable device. Prints one line
// when a CUDA build finds no device. INGOT_REQUIRE_CUDA=1 in the environment turns that into a
// failure.
std::vector<Device> test_devices();

// For tests of what CUDA alone has: whether test_devices() holds CUDA.
bool has_gpu();

std::unique_ptr<Context> make_context(Device device);

inline std::vector<DType> float_dtypes() {
    return {DType::f32, DType::bf16};
}

}  // namespace ingot::test
