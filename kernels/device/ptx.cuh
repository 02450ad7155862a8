// Inline assembly, one wrapper an instruction; sm_80 and up. Shared memory is addressed by the
// 32-bit offsets of its own window, as these instructions take them.
#pragma once

#include <cstdint>

namespace ingot::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit elements. Lanes 8i..8i+7 give the addresses of the rows of matrix i;
// afterwards lane 4r+c holds elements (r, 2c) and (r, 2c+1) of matrix i in out[i].
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&out)[4], std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

// The same, transposed: lane 4r+c holds elements (2c, r) and (2c+1, r).
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&out)[4],
                                                          std::uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

// sum (16 x 8, fp32) += a (16 x 16, bf16, rows) * b (16 x 8, bf16, columns). Lane 4r+c holds
//   sum: (r, 2c), (r, 2c+1), (r+8, 2c), (r+8, 2c+1)
//   a:   (r, 2c..), (r+8, 2c..), (r, 2c+8..), (r+8, 2c+8..)      two elements a register
//   b:   (2c.., r), (2c+8.., r)
__device__ __forceinline__ void multiply_add(float (&sum)[4],
                                             const std::uint32_t (&a)[4],
                                             std::uint32_t b0,
                                             std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory, past L1; zeros when valid is false (src is not read).
__device__ __forceinline__ void copy_async_16(std::uint32_t dst, const void* src, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(src),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_8(std::uint32_t dst, const void* src, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(dst), "l"(src),
                 "r"(valid ? 8 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most kPending of this thread's committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Barrier `id` of the block, 1 to 15, for `threads` of its threads, whole warps.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void store_shared_32(std::uint32_t address, std::uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ float4 load_shared_float4(std::uint32_t address) {
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

__device__ __forceinline__ int4 load_shared_int4(std::uint32_t address) {
    int4 value;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

// 2^x to about 2 ulp; 2^-inf = 0, subnormal results are flushed to zero.
__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

// Two floats rounded to nearest even bf16, `low` in the lower half.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
    std::uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// Flags between blocks: what a thread wrote before store_release, or saw written before a barrier
// it passed, is visible to one that saw the value through load_acquire.
__device__ __forceinline__ int load_acquire(const int* flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];\n" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(int* flag, int value) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;\n" ::"l"(flag), "r"(value) : "memory");
}

// The same value, which the compiler takes for a new one: what is derived from it is computed where
// it is used instead of being kept in registers through a loop that has none to spare.
__device__ __forceinline__ int recomputed(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

}  // namespace ingot::ptx
