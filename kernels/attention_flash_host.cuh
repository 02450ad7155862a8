// What the launchers of the two flash attention passes share.
#pragma once

#include <algorithm>
#include <cstdint>

#include <climits>

#include "kernels/attention_flash.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/shared_memory.cuh"

namespace ingot::flash {

// The shape that a packed qkv of a checked call has.
inline AttentionShape shape_of(const ConstTensor& qkv, int num_heads, int num_kv_heads) {
    const std::int64_t slots = num_heads + 2 * std::int64_t{num_kv_heads};
    return {qkv.dim(0), qkv.dim(1), num_heads, num_kv_heads, static_cast<int>(qkv.dim(2) / slots),
            qkv.dtype};
}

inline void check_call(const char* op, const AttentionShape& s, float scale, bool are_aligned) {
    ENSURE(cuda::flash_attention_supports(s), "attention.dtype", op,
           ": flash attention takes bf16 and head "
           "sizes 64 and 128, not ",
           name_of(s.dtype), " and ", s.head_size, "; use the general path");
    ENSURE(scale > 0.0F, "attention.scale", op, ": scale = ", scale,
           ", must be above 0; usual is 1 / sqrt(head size)");
    ENSURE(are_aligned, "attention.alignment", op,
           ": a tensor does not start at a multiple of 16 bytes; allocate it from an arena");
    ENSURE(s.T <= INT_MAX / 2 && s.B * s.num_heads <= INT_MAX / 2, "attention.shape", op,
           ": B * NH = ", s.B * s.num_heads, " and T = ", s.T, ", each must be at most ",
           INT_MAX / 2);
}

// Bytes of dynamic shared memory a block may use: what the current device offers, or less when the
// call or the build (INGOT_SHARED_MEMORY_LIMIT) asks for it.
inline int shared_limit_bytes(int wanted, const char* op, const TensorShape& shape) {
    const int offered = cuda::shared_memory_limit_bytes(op, shape);
    return wanted > 0 ? std::min(wanted, offered) : offered;
}

template <class Params>
void launch(Stream stream,
            void (*kernel)(Params),
            std::int64_t blocks,
            int threads,
            int shared_bytes,
            const Params& params,
            const char* op,
            const TensorShape& shape) {
    const unsigned grid = cuda::grid_blocks(op, shape, blocks);
    CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), op,
        shape);
    kernel<<<grid, threads, shared_bytes, cuda::native(stream)>>>(params);
    cuda::check_launch(op, shape);
}

}  // namespace ingot::flash
