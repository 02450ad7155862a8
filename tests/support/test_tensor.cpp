#include "tests/support/test_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/rng.h"

namespace ingot::test {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::uint8_t kGuardByte = 0xA5;

std::uint64_t hash_of(const std::string& text) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const char c : text)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

std::vector<std::uint8_t> to_bytes(const std::vector<float>& values, DType dtype) {
    std::vector<std::uint8_t> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
    if (dtype == DType::f32) {
        if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }
    ENSURE(dtype == DType::bf16, "test.dtype", "test tensor of dtype ", name_of(dtype));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const bf16 value = to_bf16(values[i]);
        std::memcpy(&bytes[2 * i], &value, 2);
    }
    return bytes;
}

}  // namespace

std::vector<float> random_values(const std::string& seed,
                                 std::int64_t count,
                                 float low,
                                 float high) {
    std::vector<float> values(static_cast<std::size_t>(count));
    const std::uint64_t stream = random_stream(RandomUse::test, 0);
    for (std::int64_t i = 0; i < count; ++i) {
        const double u = philox_uniform(hash_of(seed), stream, static_cast<std::uint64_t>(i));
        values[static_cast<std::size_t>(i)] = static_cast<float>(low + u * (high - low));
    }
    return values;
}

std::vector<std::int32_t> random_ids(const std::string& seed, std::int64_t count, int limit) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const double u = philox_uniform(hash_of(seed), random_stream(RandomUse::test, 1),
                                        static_cast<std::uint64_t>(i));
        ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(u * limit);
    }
    return ids;
}

std::vector<float> rounded(const std::vector<float>& values, DType dtype) {
    if (dtype != DType::bf16) return values;
    std::vector<float> result;
    result.reserve(values.size());
    for (const float value : values)
        result.push_back(to_float(to_bf16(value)));
    return result;
}

TestTensor::TestTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> dims)
    : context_(&context) {
    const Tensor shape = make_tensor(static_cast<void*>(nullptr), dtype, dims, context.device());
    const std::int64_t total = shape.size_bytes() + 2 * kGuardBytes;
    buffer_ = Buffer(context, total, "test tensor");
    const std::vector<std::uint8_t> guards(static_cast<std::size_t>(total), kGuardByte);
    view_ = buffer_.tensor(DType::u8, {total});
    write(guards.data(), total);
    view_ = buffer_.tensor(dtype, dims, kGuardBytes);
    poison();
}

TestTensor::TestTensor(Context& context,
                       DType dtype,
                       std::initializer_list<std::int64_t> dims,
                       const std::vector<float>& values)
    : TestTensor(context, dtype, dims) {
    set(values);
}

TestTensor::TestTensor(Context& context,
                       std::initializer_list<std::int64_t> dims,
                       const std::vector<std::int32_t>& ids)
    : TestTensor(context, DType::i32, dims) {
    ENSURE(static_cast<std::int64_t>(ids.size()) == view_.numel(), "test.size", ids.size(),
           " ids for ", view_.shape_string());
    write(ids.data(), view_.size_bytes());
}

Tensor TestTensor::shifted(std::initializer_list<std::int64_t> dims) const {
    return view_.view({view_.numel()}).slice(1, view_.numel()).view(dims);
}

void TestTensor::write(const void* host, std::int64_t size_bytes) {
    const Tensor target = make_tensor(view_.data, DType::u8, {size_bytes}, view_.device);
    copy(context_->compute_stream(), target,
         make_tensor(host, DType::u8, {size_bytes}, Device::cpu));
    context_->compute_stream().synchronize();
}

void TestTensor::set(const std::vector<float>& values) {
    ENSURE(static_cast<std::int64_t>(values.size()) == view_.numel(), "test.size", values.size(),
           " values for ", view_.shape_string());
    const std::vector<std::uint8_t> raw = to_bytes(values, view_.dtype);
    write(raw.data(), view_.size_bytes());
}

void TestTensor::poison() {
    const std::size_t count = static_cast<std::size_t>(view_.numel());
    if (view_.dtype == DType::i32 || view_.dtype == DType::u8) {
        const std::vector<std::uint8_t> raw(static_cast<std::size_t>(view_.size_bytes()), 0x7f);
        write(raw.data(), view_.size_bytes());
    } else {
        set(std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
    }
}

std::vector<std::uint8_t> TestTensor::bytes() const {
    context_->synchronize();
    std::vector<std::uint8_t> all(static_cast<std::size_t>(buffer_.size_bytes()));
    const Stream stream = context_->compute_stream();
    copy(stream, make_tensor(all.data(), DType::u8, {buffer_.size_bytes()}, Device::cpu),
         buffer_.tensor(DType::u8, {buffer_.size_bytes()}));
    stream.synchronize();
    const std::size_t end = kGuardBytes + static_cast<std::size_t>(view_.size_bytes());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i >= kGuardBytes && i < end) continue;
        ENSURE(all[i] == kGuardByte, "test.guard", "an op wrote outside its tensor ",
               view_.shape_string(), ", ", static_cast<std::int64_t>(i) - kGuardBytes,
               " bytes from its start");
    }
    return {all.begin() + kGuardBytes, all.begin() + static_cast<std::int64_t>(end)};
}

std::vector<float> TestTensor::values() const {
    const std::vector<std::uint8_t> raw = bytes();
    std::vector<float> result(static_cast<std::size_t>(view_.numel()));
    for (std::size_t i = 0; i < result.size(); ++i) {
        if (view_.dtype == DType::f32) {
            std::memcpy(&result[i], &raw[4 * i], 4);
        } else {
            bf16 value{};
            std::memcpy(&value, &raw[2 * i], 2);
            result[i] = to_float(value);
        }
    }
    return result;
}

}  // namespace ingot::test
