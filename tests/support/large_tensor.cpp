#include "tests/support/large_tensor.h"

#include <cmath>
#include <cstring>

namespace ingot::test {

Large::Large(Context& context, DType dtype, std::initializer_list<std::int64_t> dims)
    : stream_(context.compute_stream()) {
    const Tensor shape = make_tensor(static_cast<void*>(nullptr), dtype, dims, context.device());
    buffer_ = Buffer(context, shape.size_bytes(), "large test tensor");
    view_ = buffer_.tensor(dtype, dims);
}

void Large::set_last(const TestTensor& rows) const {
    const std::int64_t count = rows.tensor().dim(0);
    copy(stream_, view_.slice(view_.dim(0) - count, view_.dim(0)), rows);
}

std::vector<std::uint8_t> Large::last_bytes(std::int64_t rows) const {
    const ConstTensor source = view_.slice(view_.dim(0) - rows, view_.dim(0));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(source.size_bytes()));
    copy(stream_, make_tensor(bytes.data(), source.dtype, {source.numel()}, Device::cpu), source);
    stream_.synchronize();
    return bytes;
}

std::vector<float> Large::last_floats(std::int64_t rows) const {
    ENSURE(view_.dtype == DType::f32, "test.dtype", "a large tensor of dtype ",
           name_of(view_.dtype), ", must be f32");
    const std::vector<std::uint8_t> bytes = last_bytes(rows);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

TestTensor random_tensor(Context& context,
                         DType dtype,
                         std::initializer_list<std::int64_t> dims,
                         const char* seed) {
    TestTensor tensor(context, dtype, dims);
    tensor.set(random_values(seed, tensor.tensor().numel(), -2.0F, 2.0F));
    return tensor;
}

TestTensor integer_tensor(Context& context,
                          DType dtype,
                          std::initializer_list<std::int64_t> dims,
                          const char* seed) {
    TestTensor tensor(context, dtype, dims);
    std::vector<float> values = random_values(seed, tensor.tensor().numel(), -1.5F, 1.5F);
    for (float& value : values)
        value = std::nearbyint(value);
    tensor.set(values);
    return tensor;
}

std::int64_t large_case_elements(Device device, std::int64_t bytes_per_element) {
    if (device == Device::cpu || has_small_sizes()) return 20000;
    const std::int64_t elements = (std::int64_t{1} << 31) + kBeyond;
    const std::int64_t needed = elements / 16 * 17 * bytes_per_element;
    const std::int64_t free_bytes = cuda_device_info(0).free_bytes;
    if (free_bytes >= needed) return elements;
    std::cout << "[skipped] large tensors: " << needed << " bytes of GPU memory needed, "
              << free_bytes << " free" << std::endl;
    return 0;
}

}  // namespace ingot::test
