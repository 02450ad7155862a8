// Tensors of more than 2^31 elements, and what tests of them share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <vector>

#include "engine/core/device.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

namespace ingot::test {

inline constexpr std::int64_t kBeyond = 1 << 24;  // elements past the 2^31st
inline constexpr std::int64_t kRows = 5;          // rows that are not zero

// Zeros. Its last rows are set and read; a row is an index of the first dimension.
class Large {
  public:
    Large(Context& context, DType dtype, std::initializer_list<std::int64_t> dims);

    operator Tensor() const { return view_; }       // NOLINT: tests pass it as what it is
    operator ConstTensor() const { return view_; }  // NOLINT
    void set_last(const TestTensor& rows) const;
    std::vector<std::uint8_t> last_bytes(std::int64_t rows) const;
    std::vector<float> last_floats(std::int64_t rows) const;  // of an f32 tensor

  private:
    Stream stream_;
    Buffer buffer_;
    Tensor view_;
};

// Values in -2 .. 2.
TestTensor random_tensor(Context& context,
                         DType dtype,
                         std::initializer_list<std::int64_t> dims,
                         const char* seed);
// -1, 0 and 1.
TestTensor integer_tensor(Context& context,
                          DType dtype,
                          std::initializer_list<std::int64_t> dims,
                          const char* seed);

// What a case on `device` works with: a little more than 2^31 elements on CUDA; a few thousand on
// the CPU and with INGOT_TEST_SIZES=small, where the case shows that its own comparison holds. 0,
// with a line that says so, when the GPU has less than `bytes_per_element` times that free.
std::int64_t large_case_elements(Device device, std::int64_t bytes_per_element);

// Runs body(context, elements, is_large) on every device.
template <class Body>
void for_each_large_case(std::int64_t bytes_per_element, Body&& body) {
    for (const Device device : test_devices()) {
        const std::int64_t elements = large_case_elements(device, bytes_per_element);
        if (elements == 0) continue;
        const auto context = make_context(device);
        body(*context, elements, elements > kBeyond);
    }
}

}  // namespace ingot::test
