// Non-owning views of memory: what every op takes and returns. A Tensor may be written through, a
// ConstTensor may not; the first converts to the second. Views are contiguous and row-major; the
// last dimension is the fastest. Included by .cu files: C++17.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "engine/core/dtype.h"

namespace ingot {

enum class Device : std::uint8_t { cpu, cuda };

const char* name_of(Device device);

inline constexpr int kMaxDims = 4;

// The shape and element type shared by both views.
struct TensorShape {
    std::int64_t dims[kMaxDims] = {0, 0, 0, 0};
    int num_dims = 0;
    DType dtype = DType::f32;
    Device device = Device::cpu;

    std::int64_t numel() const;  // 1 when there are no dimensions
    std::int64_t size_bytes() const { return numel() * size_of(dtype); }
    std::int64_t dim(int index) const;                // negative indexes count from the end
    std::int64_t rows() const;                        // numel() / dim(-1)
    std::string shape_string() const;                 // "(8, 16) bf16"
    bool same_shape(const TensorShape& other) const;  // dims only
};

struct ConstTensor : TensorShape {
    const void* data = nullptr;

    explicit operator bool() const { return data != nullptr; }
    template <class T>
    const T* ptr() const {
        check_type(dtype_of<T>::value);
        return static_cast<const T*>(data);
    }
    ConstTensor slice(std::int64_t begin, std::int64_t end) const;  // along the first dimension
    ConstTensor view(std::initializer_list<std::int64_t> new_dims) const;  // same numel

  private:
    void check_type(DType wanted) const;
};

struct Tensor : TensorShape {
    void* data = nullptr;

    explicit operator bool() const { return data != nullptr; }
    operator ConstTensor() const;  // NOLINT(google-explicit-constructor): reading is always allowed
    template <class T>
    T* ptr() const {
        check_type(dtype_of<T>::value);
        return static_cast<T*>(data);
    }
    Tensor slice(std::int64_t begin, std::int64_t end) const;
    Tensor view(std::initializer_list<std::int64_t> new_dims) const;

  private:
    void check_type(DType wanted) const;
};

Tensor make_tensor(void* data,
                   DType dtype,
                   std::initializer_list<std::int64_t> dims,
                   Device device);
ConstTensor make_tensor(const void* data,
                        DType dtype,
                        std::initializer_list<std::int64_t> dims,
                        Device device);

}  // namespace ingot
