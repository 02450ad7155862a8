// The BLAS of a build with OpenBLAS; the one file that includes cblas.h.
#include "kernels/blas.h"

#include <limits>
#include <omp.h>

#include <cblas.h>

#include "engine/core/check.h"

namespace ingot::blas {
namespace {

blasint narrow(std::int64_t size, const char* name) {
    constexpr std::int64_t kMax = std::numeric_limits<blasint>::max();
    ENSURE(size >= 0 && size <= kMax, "matmul.size", "sgemm: ", name, " = ", size,
           ", OpenBLAS takes 0 to ", kMax, "; use a smaller batch");
    return static_cast<blasint>(size);
}

}  // namespace

void sgemm(const Sgemm& g) {
    const blasint M = narrow(g.M, "M");
    const blasint N = narrow(g.N, "N");
    const blasint K = narrow(g.K, "K");
    if (M == 0 || N == 0) return;
    const blasint stride_a = narrow(g.stride_a, "stride_a");
    const blasint stride_b = narrow(g.stride_b, "stride_b");
    const blasint stride_c = narrow(g.stride_c, "stride_c");
    cblas_sgemm(CblasRowMajor, g.transpose_a ? CblasTrans : CblasNoTrans,
                g.transpose_b ? CblasTrans : CblasNoTrans, M, N, K, 1.0F, g.a, stride_a, g.b,
                stride_b, g.accumulate ? 1.0F : 0.0F, g.c, stride_c);
}

void set_num_threads(int n) {
    ENSURE(n >= 1, "blas.threads", "set_num_threads: ", n, " threads, must be at least 1");
    omp_set_num_threads(n);
    openblas_set_num_threads(n);
}

std::string description() {
    // The configuration text starts with the name and version; the rest is how it was built.
    const std::string config = openblas_get_config();
    const std::size_t name_end = config.find(' ');
    const std::string name = config.substr(0, config.find(' ', name_end + 1));
    return str(name, ", kernels ", openblas_get_corename(), ", ", openblas_get_num_threads(),
               " threads");
}

}  // namespace ingot::blas
