// Goal: views refuse what would read or write outside, and say both numbers. Method: direct calls.
#include <doctest/doctest.h>

#include "engine/core/tensor.h"

using namespace ingot;

TEST_CASE("tensor: slice and view keep the memory and change the shape") {
    float data[12] = {};
    const Tensor t = make_tensor(data, DType::f32, {3, 4}, Device::cpu);
    CHECK(t.numel() == 12);
    CHECK(t.size_bytes() == 48);
    CHECK(t.rows() == 3);
    CHECK(t.dim(-1) == 4);
    CHECK(t.shape_string() == "(3, 4) f32");
    CHECK(t.slice(1, 3).data == data + 4);
    CHECK(t.slice(1, 3).shape_string() == "(2, 4) f32");
    CHECK(t.view({2, 6}).shape_string() == "(2, 6) f32");
    const ConstTensor c = t;
    CHECK(c.slice(2, 2).numel() == 0);
    CHECK(c.ptr<float>() == data);
}

TEST_CASE("tensor: a slice past the end is refused with the range and the shape") {
    float data[12] = {};
    const Tensor t = make_tensor(data, DType::f32, {3, 4}, Device::cpu);
    CHECK_THROWS_WITH_AS(t.slice(1, 4),
                         "slice [1, 4) of tensor (3, 4) f32; the range must lie inside the first "
                         "dimension",
                         Error);
    CHECK_THROWS_AS(t.slice(2, 1), Error);
    CHECK_THROWS_WITH_AS(t.view({5}), doctest::Contains("(5) f32"), Error);
}

TEST_CASE("tensor: reading memory as another type is refused") {
    float data[2] = {};
    const Tensor t = make_tensor(data, DType::f32, {2}, Device::cpu);
    CHECK_THROWS_WITH_AS(t.ptr<bf16>(), "tensor (2) f32 is read as bf16", Error);
}

TEST_CASE("tensor: negative and too many dimensions are refused") {
    CHECK_THROWS_AS(make_tensor(static_cast<void*>(nullptr), DType::f32, {-1}, Device::cpu), Error);
    CHECK_THROWS_AS(
        make_tensor(static_cast<void*>(nullptr), DType::f32, {1, 1, 1, 1, 1}, Device::cpu), Error);
}
