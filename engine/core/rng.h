// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). Every draw is a function of (seed, stream, position) alone, so it does not
// depend on ranks, threads or the order of the draws, and nothing has to be saved. Same bits on
// host and device. Included by .cu files: C++17.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/core/host_device.h"

namespace ingot {

struct PhiloxBlock {
    std::uint32_t word[4];
};

// counter = position (low 64 bits) and stream (high 64 bits), key = seed.
INGOT_HOST_DEVICE inline PhiloxBlock philox(std::uint64_t seed,
                                            std::uint64_t stream,
                                            std::uint64_t position) {
    std::uint32_t c0 = static_cast<std::uint32_t>(position);
    std::uint32_t c1 = static_cast<std::uint32_t>(position >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream);
    std::uint32_t c3 = static_cast<std::uint32_t>(stream >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(seed);
    std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0;
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2;
        const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
        const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<std::uint32_t>(p1);
        c3 = static_cast<std::uint32_t>(p0);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1), 53 bits.
INGOT_HOST_DEVICE inline double philox_uniform(std::uint64_t seed,
                                               std::uint64_t stream,
                                               std::uint64_t position) {
    const PhiloxBlock block = philox(seed, stream, position);
    const std::uint64_t bits = (static_cast<std::uint64_t>(block.word[0]) << 32) | block.word[1];
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Standard normal (Box-Muller).
inline double philox_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {
    const PhiloxBlock block = philox(seed, stream, position);
    const std::uint64_t a = (static_cast<std::uint64_t>(block.word[0]) << 32) | block.word[1];
    const std::uint64_t b = (static_cast<std::uint64_t>(block.word[2]) << 32) | block.word[3];
    const double radius_uniform = (static_cast<double>(a >> 11) + 1.0) * 0x1.0p-53;  // (0, 1]
    const double angle_uniform = static_cast<double>(b >> 11) * 0x1.0p-53;
    return std::sqrt(-2.0 * std::log(radius_uniform)) *
           std::cos(2.0 * 3.14159265358979323846 * angle_uniform);
}

// What a draw is for: the high part of the stream number, so that two uses never share draws.
enum class RandomUse : std::uint64_t {
    parameter_init = 1,
    sampling = 2,
    test = 3,
    shuffle = 4,
    warm_up = 5
};

INGOT_HOST_DEVICE constexpr std::uint64_t random_stream(RandomUse use, std::uint64_t index) {
    return (static_cast<std::uint64_t>(use) << 48) | index;
}

}  // namespace ingot
