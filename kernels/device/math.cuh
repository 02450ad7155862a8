// Single instructions that CUDA C++ has no name for without a compiler flag.
#pragma once

namespace ingot::cuda {

// 2^x with about 2 ulp; results below 2^-126 become 0.
__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace ingot::cuda
