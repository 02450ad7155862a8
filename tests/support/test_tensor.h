// Tensors of tests: owned memory on either device, random or given contents, NaN poison, guards.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/core/device.h"

namespace ingot::test {

// Deterministic values, uniform in [low, high), seeded by a name (use the case's name).
std::vector<float> random_values(const std::string& seed,
                                 std::int64_t count,
                                 float low = -1.0F,
                                 float high = 1.0F);
std::vector<std::int32_t> random_ids(const std::string& seed, std::int64_t count, int limit);

// The values after rounding to dtype: what an op that is given them really sees.
std::vector<float> rounded(const std::vector<float>& values, DType dtype);

// A tensor with 256 guard bytes on each side. Contents start as NaN (floats) or 0x7f7f7f7f (ids).
class TestTensor {
  public:
    TestTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> dims);
    TestTensor(Context& context,
               DType dtype,
               std::initializer_list<std::int64_t> dims,
               const std::vector<float>& values);
    TestTensor(Context& context,
               std::initializer_list<std::int64_t> dims,
               const std::vector<std::int32_t>& ids);

    Tensor tensor() const { return view_; }
    // A view of all elements but the first, which lies at an odd place: vector loads cannot take
    // it.
    Tensor shifted(std::initializer_list<std::int64_t> dims) const;
    operator Tensor() const { return view_; }       // NOLINT: tests pass it as what it is
    operator ConstTensor() const { return view_; }  // NOLINT
    void set(const std::vector<float>& values);     // rounds to the dtype
    std::vector<float> values() const;              // synchronizes, reads, checks the guards
    std::vector<std::uint8_t> bytes() const;        // the same, raw, for bit comparisons
    void poison();

  private:
    void write(const void* host, std::int64_t size_bytes);

    Context* context_;
    Buffer buffer_;
    Tensor view_;
};

}  // namespace ingot::test
