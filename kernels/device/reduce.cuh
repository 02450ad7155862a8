// Sums and maxima over a warp and over a block, in an order that depends on the block's size alone.
#pragma once

#include <cuda_runtime.h>

namespace ingot::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffU;

// Over `Lanes` neighbouring lanes (a power of two); every lane gets the same bits.
template <int Lanes = 32, class Number>
__device__ __forceinline__ Number warp_sum(Number value) {
#pragma unroll
    for (int offset = Lanes / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(kFullWarp, value, offset);
    return value;
}

template <int Lanes = 32>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int offset = Lanes / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
    return value;
}

// Over all threads of a block of Warps * 32 threads; every thread gets the result. `shared` holds
// Warps numbers and is free for reuse after the next barrier.
template <int Warps, class Number>
__device__ __forceinline__ Number block_sum(Number value, Number* shared) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    Number total = shared[0];
#pragma unroll
    for (int w = 1; w < Warps; ++w)
        total += shared[w];
    return total;
}

}  // namespace ingot::cuda
