// Several neighbouring elements of a row, moved by one memory instruction of up to 16 bytes and
// kept in registers as they lie in memory. Arithmetic is in fp32: read with get(), write with
// from().
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "engine/core/dtype.h"

namespace ingot::cuda {

// Elements in 16 bytes.
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float widen(float value) {
    return value;
}
__device__ __forceinline__ float widen(bf16 value) {
    return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

template <class T>
__device__ __forceinline__ T narrow(float value);
template <>
__device__ __forceinline__ float narrow<float>(float value) {
    return value;
}
// Round to nearest, ties to even; NaN stays NaN.
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float value) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// `streaming` marks data that nobody reads again soon, so that it does not push other lines out.
enum class Use { normal, streaming };

template <class T, int Width>
struct Pack {
    static constexpr int kBytes = Width * static_cast<int>(sizeof(T));
    static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
    static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes % 16 == 0,
                  "a pack is one or more whole memory accesses");
    unsigned words[kWords];

    // source must be aligned to min(kBytes, 16) bytes.
    template <Use kUse = Use::normal>
    __device__ __forceinline__ static Pack load(const T* source) {
        Pack pack;
        if constexpr (kBytes == 2) {
            pack.words[0] = read<kUse>(reinterpret_cast<const unsigned short*>(source));
        } else if constexpr (kBytes == 4) {
            pack.words[0] = read<kUse>(reinterpret_cast<const unsigned*>(source));
        } else if constexpr (kBytes == 8) {
            const uint2 word = read<kUse>(reinterpret_cast<const uint2*>(source));
            pack.words[0] = word.x;
            pack.words[1] = word.y;
        } else {
#pragma unroll
            for (int i = 0; i < kBytes / 16; ++i) {
                const uint4 word = read<kUse>(reinterpret_cast<const uint4*>(source) + i);
                pack.words[4 * i] = word.x;
                pack.words[4 * i + 1] = word.y;
                pack.words[4 * i + 2] = word.z;
                pack.words[4 * i + 3] = word.w;
            }
        }
        return pack;
    }

    template <Use kUse = Use::normal>
    __device__ __forceinline__ void store(T* target) const {
        if constexpr (kBytes == 2) {
            write<kUse>(reinterpret_cast<unsigned short*>(target),
                        static_cast<unsigned short>(words[0]));
        } else if constexpr (kBytes == 4) {
            write<kUse>(reinterpret_cast<unsigned*>(target), words[0]);
        } else if constexpr (kBytes == 8) {
            write<kUse>(reinterpret_cast<uint2*>(target), make_uint2(words[0], words[1]));
        } else {
#pragma unroll
            for (int i = 0; i < kBytes / 16; ++i) {
                write<kUse>(
                    reinterpret_cast<uint4*>(target) + i,
                    make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]));
            }
        }
    }

    // Element i as fp32; i must be a compile-time constant after unrolling.
    __device__ __forceinline__ float get(int i) const {
        if constexpr (sizeof(T) == 4) {
            return __uint_as_float(words[i]);
        } else {
            const unsigned word = words[i / 2];
            return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
        }
    }

    // The values rounded to T.
    __device__ __forceinline__ static Pack from(const float (&values)[Width]) {
        Pack pack;
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < Width; ++i)
                pack.words[i] = __float_as_uint(values[i]);
        } else if constexpr (Width == 1) {
            pack.words[0] = narrow<bf16>(values[0]).bits;
        } else {
#pragma unroll
            for (int i = 0; i < Width / 2; ++i) {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
                pack.words[i] = static_cast<unsigned>(__bfloat16_as_ushort(pair.x)) |
                                (static_cast<unsigned>(__bfloat16_as_ushort(pair.y)) << 16);
            }
        }
        return pack;
    }

    // Makes the compiler forget what it knows of the contents, so that it unpacks them again at the
    // next use instead of holding the unpacked values in twice the registers.
    __device__ __forceinline__ void forget_unpacked() {
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            asm volatile("" : "+r"(words[i]));
    }

    __device__ __forceinline__ static Pack zero() {
        Pack pack;
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            pack.words[i] = 0;
        return pack;
    }

  private:
    template <Use kUse, class Word>
    __device__ __forceinline__ static Word read(const Word* source) {
        return kUse == Use::streaming ? __ldcs(source) : *source;
    }
    template <Use kUse, class Word>
    __device__ __forceinline__ static void write(Word* target, Word value) {
        if constexpr (kUse == Use::streaming) {
            __stcs(target, value);
        } else {
            *target = value;
        }
    }
};

}  // namespace ingot::cuda
