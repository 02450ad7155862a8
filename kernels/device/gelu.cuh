// GELU in its tanh form and its slope, for one fp32 value; T is the dtype of the tensors around it.
#pragma once

#include <type_traits>

#include "engine/core/dtype.h"

namespace ingot::cuda {

// x^2, bounded: beyond |x| = 64 the GELU is 0 or x in fp32, whatever u is, and x^2 may overflow.
__device__ __forceinline__ float gelu_square(float x) {
    return fminf(x * x, 4096.0F);
}

// exp(-2|u|), s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). bf16 results take the hardware's
// exponential and division: their error is far below bf16's rounding.
template <class T>
__device__ __forceinline__ void gelu_sigmoid(float x, float* e, float* s) {
    const float u = 0.7978845608028654F * x * (1.0F + 0.044715F * gelu_square(x));
    float inverse;
    if constexpr (std::is_same<T, bf16>::value) {
        *e = __expf(-2.0F * fabsf(u));
        inverse = __fdividef(1.0F, 1.0F + *e);
    } else {
        *e = expf(-2.0F * fabsf(u));
        inverse = 1.0F / (1.0F + *e);
    }
    *s = u >= 0.0F ? inverse : *e * inverse;
}

template <class T>
__device__ __forceinline__ float gelu_value(float x) {
    float e = 0.0F;
    float s = 0.0F;
    gelu_sigmoid<T>(x, &e, &s);
    return x * s;
}

template <class T>
__device__ __forceinline__ float gelu_slope(float x) {
    float e = 0.0F;
    float s = 0.0F;
    gelu_sigmoid<T>(x, &e, &s);
    const float one_side = x >= 0.0F ? s : 1.0F - s;  // 1 / (1 + e), computed without cancellation
    const float du = 0.7978845608028654F * (1.0F + 3.0F * 0.044715F * gelu_square(x));
    return s + 2.0F * x * (e * one_side * one_side * du);
}

}  // namespace ingot::cuda
