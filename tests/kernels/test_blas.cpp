// Goal: the linked BLAS and the tiled loop both compute right products, and a wrong BLAS is found
// and named. Method: the library's own self-check against float64, run on both; an invented fault
// per kind; sizes around every tile of the loop.
#include <cmath>
#include <omp.h>

#include <doctest/doctest.h>

#include "engine/core/build_config.h"
#include "engine/core/check.h"
#include "kernels/blas.h"
#include "kernels/tiled_sgemm.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using blas::Sgemm;

// a and b dense, c from `result`.
Sgemm dense(const std::vector<float>& a,
            const std::vector<float>& b,
            std::vector<float>& result,
            std::int64_t M,
            std::int64_t N,
            std::int64_t K) {
    return {.c = result.data(),
            .a = a.data(),
            .b = b.data(),
            .M = M,
            .N = N,
            .K = K,
            .stride_c = N,
            .stride_a = K,
            .stride_b = N,
            .transpose_a = false,
            .transpose_b = false,
            .accumulate = false};
}

}  // namespace

TEST_CASE("blas: the linked library passes its self-check") {
    CHECK_NOTHROW(blas::verify());
}

TEST_CASE("blas: the tiled loop passes the same self-check") {
    CHECK_NOTHROW(blas::verify_sgemm(blas::tiled_sgemm, "tiled loop"));
}

TEST_CASE("blas: both agree with float64 on sizes around every tile") {
    for (const std::int64_t M : {1, 6, 7, 95, 97, 193}) {
        for (const std::int64_t N : {1, 15, 17, 128, 129}) {
            for (const std::int64_t K : {1, 255, 257, 520}) {
                const std::vector<float> a = random_values("a", M * K);
                const std::vector<float> b = random_values("b", K * N);
                std::vector<float> tiled(static_cast<std::size_t>(M * N), NAN);
                std::vector<float> library = tiled;
                blas::tiled_sgemm(dense(a, b, tiled, M, N, K));
                blas::sgemm(dense(a, b, library, M, N, K));
                double worst = 0.0;
                for (std::int64_t i = 0; i < M * N; ++i) {
                    double sum = 0.0;
                    for (std::int64_t k = 0; k < K; ++k)
                        sum += static_cast<double>(a[i / N * K + k]) * b[k * N + i % N];
                    const double error =
                        std::fmax(std::fabs(tiled[i] - sum), std::fabs(library[i] - sum));
                    worst = std::isnan(tiled[i] + library[i]) ? INFINITY : std::fmax(worst, error);
                }
                CAPTURE(M);
                CAPTURE(N);
                CAPTURE(K);
                CHECK(worst < 0x1.0p-23 * static_cast<double>(K + 8));
            }
        }
    }
}

TEST_CASE("blas: the tiled loop gives the same bits with 1 and with 3 threads") {
    const std::vector<float> a = random_values("a", 211 * 300);
    const std::vector<float> b = random_values("b", 300 * 260);
    std::vector<float> one(211 * 260);
    std::vector<float> three(211 * 260);
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    blas::tiled_sgemm(dense(a, b, one, 211, 260, 300));
    omp_set_num_threads(3);
    blas::tiled_sgemm(dense(a, b, three, 211, 260, 300));
    omp_set_num_threads(before);
    CHECK(one == three);
}

TEST_CASE("blas: the self-check finds a wrong element, an ignored flag and a write past a row") {
    const auto caught = [](auto&& fault) {
        try {
            blas::verify_sgemm(
                [&](const Sgemm& g) {
                    Sgemm changed = g;
                    fault(changed, true);
                    blas::tiled_sgemm(changed);
                    fault(changed, false);
                },
                "InventedBLAS 1.2, kernels Newest");
        } catch (const Error& error) {
            CHECK(std::string(error.code()) == "blas.wrong_result");
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string wrong = caught([](Sgemm& g, bool before) {
        if (!before && g.M == 67) g.c[66 * g.stride_c + 48] += 0.01F;
    });
    CHECK(wrong.find("InventedBLAS 1.2, kernels Newest") != std::string::npos);
    CHECK(wrong.find("element (66, 48) of a 67 x 49 product over 257 terms") != std::string::npos);
    CHECK(wrong.find("OPENBLAS_CORETYPE") != std::string::npos);
    CHECK(caught([](Sgemm& g, bool) { g.accumulate = false; }) != "");
    CHECK(caught([](Sgemm& g, bool before) {
              if (!before) g.c[g.N] += 1.0F;
          }) != "");
    CHECK(caught([](Sgemm& g, bool before) {
              if (!before && g.M > 1) g.c[g.stride_c] = NAN;
          }) != "");
    CHECK(caught([](Sgemm&, bool) {}) == "");
}

TEST_CASE("blas: set_num_threads sets the threads of both, and refuses none") {
    const int before = omp_get_max_threads();
    blas::set_num_threads(1);
    CHECK(omp_get_max_threads() == 1);
    CHECK(blas::description().find("1 threads") != std::string::npos);
    blas::set_num_threads(before);
    CHECK(omp_get_max_threads() == before);
    CHECK_THROWS_WITH_AS(blas::set_num_threads(0), "set_num_threads: 0 threads, must be at least 1",
                         Error);
}

TEST_CASE("blas: the description names the library and its kernel set") {
    const std::string text = blas::description();
    const bool is_openblas = text.rfind("OpenBLAS 0.", 0) == 0;
    if (is_openblas) {
        CHECK(text.find("kernels ") != std::string::npos);
    } else if (kHasOpenBlas) {  // a build that was carried to a machine without the library
        CHECK(text.rfind("tiled loop (OpenBLAS was not loaded: libopenblas.so.0", 0) == 0);
    } else {
        CHECK(text.rfind("tiled loop (this build has no OpenBLAS)", 0) == 0);
    }
}

TEST_CASE("blas: a dimension beyond the library's integers is refused with its value") {
    if (!kHasOpenBlas) return;
    std::vector<float> one(1);
    Sgemm args = dense(one, one, one, 1, 1, 1);
    args.M = 3000000000;
    CHECK_THROWS_WITH_AS(blas::sgemm(args),
                         "sgemm: M = 3000000000, OpenBLAS takes 0 to 2147483647; use a smaller "
                         "batch",
                         Error);
}
