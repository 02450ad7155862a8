#include "data/sha256.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "engine/core/check.h"

namespace ingot {
namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotate_right(std::uint32_t x, int bits) {
    return (x >> bits) | (x << (32 - bits));
}

// One 64-byte block into the state.
void compress(std::uint32_t (&state)[8], const unsigned char* block) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
        w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24 |
               static_cast<std::uint32_t>(block[4 * i + 1]) << 16 |
               static_cast<std::uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
        const std::uint32_t s0 =
            rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const std::uint32_t s1 =
            rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::uint32_t s[8];
    std::memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; ++i) {
        const std::uint32_t sum1 =
            rotate_right(s[4], 6) ^ rotate_right(s[4], 11) ^ rotate_right(s[4], 25);
        const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const std::uint32_t t1 = s[7] + sum1 + choice + kRoundConstants[i] + w[i];
        const std::uint32_t sum0 =
            rotate_right(s[0], 2) ^ rotate_right(s[0], 13) ^ rotate_right(s[0], 22);
        const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        std::memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += t1;
        s[0] = t1 + sum0 + majority;
    }
    for (int i = 0; i < 8; ++i)
        state[i] += s[i];
}

}  // namespace

Sha256Digest sha256(const void* bytes, std::size_t size_bytes) {
    const auto* data = static_cast<const unsigned char*>(bytes);
    std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::size_t whole_blocks = size_bytes / 64;
    for (std::size_t i = 0; i < whole_blocks; ++i)
        compress(state, data + 64 * i);

    // The rest, a one bit, zeros, and the length in bits: one or two blocks.
    unsigned char tail[128] = {};
    const std::size_t rest = size_bytes % 64;
    if (rest > 0) std::memcpy(tail, data + 64 * whole_blocks, rest);
    tail[rest] = 0x80;
    const std::size_t tail_bytes = rest < 56 ? 64 : 128;
    const std::uint64_t bits = static_cast<std::uint64_t>(size_bytes) * 8;
    for (int i = 0; i < 8; ++i) {
        tail[tail_bytes - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
    }
    for (std::size_t at = 0; at < tail_bytes; at += 64)
        compress(state, tail + at);

    Sha256Digest digest;
    for (std::size_t i = 0; i < digest.size(); ++i) {
        digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    }
    return digest;
}

Sha256Digest sha256_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    ENSURE(file, "tokenizer.open", path, ": cannot open: ", std::strerror(errno));
    const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
    ENSURE(!file.bad(), "tokenizer.open", path, ": cannot read: ", std::strerror(errno));
    return sha256(content.data(), content.size());
}

std::string hex_string(const Sha256Digest& digest) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : digest) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

}  // namespace ingot
