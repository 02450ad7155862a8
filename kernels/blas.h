// The matrix product of the CPU backend: OpenBLAS where the build has it, otherwise the tiled loop
// of kernels/tiled_sgemm.h. CMake chooses the source file (blas_openblas.cpp, blas_tiled.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ingot::blas {

// c (+)= op(a) @ op(b), all row-major, sums in fp32. An overwritten c may hold anything, NaN
// included. A stride is the number of elements from one stored row to the next.
struct Sgemm {
    float* c;        // (M, N)
    const float* a;  // (M, K), or (K, M) with transpose_a
    const float* b;  // (K, N), or (N, K) with transpose_b
    std::int64_t M, N, K;
    std::int64_t stride_c, stride_a, stride_b;
    bool transpose_a;
    bool transpose_b;
    bool accumulate;  // += instead of =
};

// Throws matmul.size when a dimension is beyond what the library's integers hold.
void sgemm(const Sgemm& args);

// Threads of OpenMP and of the BLAS for calls from this host thread. n >= 1, or blas.threads.
void set_num_threads(int n);

// For the console: library, version, kernel set and threads.
std::string description();

// Products with known answers, over sizes that reach the edge code of a BLAS, against float64.
// Some releases of OpenBLAS have kernel sets that compute wrongly on CPUs newer than they are.
// Throws blas.wrong_result, naming the library, what it computed and the setting that avoids it.
// Takes a few milliseconds.
void verify();

// FLOP/s of sgemm on 1024 x 1024 matrices with the threads set now, the best of five: what the
// CPU's MFU refers to. Takes about 0.1 s.
double measured_flops();

// The check behind verify(), for any implementation.
void verify_sgemm(const std::function<void(const Sgemm&)>& implementation,
                  const std::string& description);

}  // namespace ingot::blas
