#include "kernels/blas.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/check.h"

namespace ingot::blas {
namespace {

// Values in [-1, 1] without a pattern that a transposed or shifted read would reproduce.
std::vector<float> test_values(std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint64_t state = seed;
    for (float& value : values) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        value = static_cast<float>(state >> 40U) * 0x1.0p-23F - 1.0F;
    }
    return values;
}

double exact_element(const Sgemm& g, std::int64_t m, std::int64_t n) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < g.K; ++k) {
        const double a = g.a[g.transpose_a ? k * g.stride_a + m : m * g.stride_a + k];
        const double b = g.b[g.transpose_b ? n * g.stride_b + k : k * g.stride_b + n];
        sum += a * b;
    }
    return sum;
}

// Runs one product on test values, with strides a little above the widths, and checks every element
// of c and that nothing between its rows was written.
void verify_product(const std::function<void(const Sgemm&)>& implementation,
                    const std::string& description,
                    Sgemm g) {
    constexpr std::int64_t kGap = 3;
    g.stride_a = (g.transpose_a ? g.M : g.K) + kGap;
    g.stride_b = (g.transpose_b ? g.K : g.N) + kGap;
    g.stride_c = g.N + kGap;
    const std::vector<float> a = test_values((g.transpose_a ? g.K : g.M) * g.stride_a, 1);
    const std::vector<float> b = test_values((g.transpose_b ? g.N : g.K) * g.stride_b, 2);
    const std::vector<float> before = test_values(g.M * g.stride_c, 3);
    std::vector<float> c = before;
    g.a = a.data();
    g.b = b.data();
    g.c = c.data();
    implementation(g);
    const double limit = 1e-6 * static_cast<double>(g.K + 1);
    for (std::int64_t i = 0; i < g.M * g.stride_c; ++i) {
        const std::int64_t m = i / g.stride_c;
        const std::int64_t n = i % g.stride_c;
        const std::size_t at = static_cast<std::size_t>(i);
        const double kept = g.accumulate || n >= g.N ? before[at] : 0.0;
        const double expected = kept + (n < g.N ? exact_element(g, m, n) : 0.0);
        ENSURE(std::fabs(c[at] - expected) <= limit, "blas.wrong_result",
               "self-check of the BLAS (", description, "): element (", m, ", ", n, ") of a ", g.M,
               " x ", g.N, " product over ", g.K, " terms is ", c[at], ", must be ", expected,
               " within ", limit,
               "; set OPENBLAS_CORETYPE to an older kernel set in the environment (SkylakeX with "
               "AVX-512, else Haswell), or install a newer OpenBLAS");
    }
}

}  // namespace

void verify_sgemm(const std::function<void(const Sgemm&)>& implementation,
                  const std::string& description) {
    struct Size {
        std::int64_t M, N, K;
    };
    // One element, primes around the vector widths, and sizes beyond one register and cache block.
    constexpr Size kSizes[] = {{1, 1, 1}, {5, 7, 3}, {17, 31, 65}, {1, 129, 67}, {67, 49, 257}};
    for (const Size& size : kSizes) {
        for (const bool transpose_a : {false, true}) {
            for (const bool transpose_b : {false, true}) {
                for (const bool accumulate : {false, true}) {
                    verify_product(implementation, description,
                                   {.c = nullptr,
                                    .a = nullptr,
                                    .b = nullptr,
                                    .M = size.M,
                                    .N = size.N,
                                    .K = size.K,
                                    .stride_c = 0,
                                    .stride_a = 0,
                                    .stride_b = 0,
                                    .transpose_a = transpose_a,
                                    .transpose_b = transpose_b,
                                    .accumulate = accumulate});
                }
            }
        }
    }
}

double measured_flops() {
    constexpr std::int64_t kSize = 1024;
    const std::vector<float> a(kSize * kSize, 0.5F);
    const std::vector<float> b(kSize * kSize, 0.25F);
    std::vector<float> c(kSize * kSize);
    double best_s = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        sgemm({.c = c.data(),
               .a = a.data(),
               .b = b.data(),
               .M = kSize,
               .N = kSize,
               .K = kSize,
               .stride_c = kSize,
               .stride_a = kSize,
               .stride_b = kSize,
               .transpose_a = false,
               .transpose_b = true,
               .accumulate = false});
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        best_s = std::min(best_s, time.count());
    }
    return 2.0 * kSize * kSize * kSize / best_s;
}

void verify() {
    verify_sgemm(sgemm, description());
}

}  // namespace ingot::blas
