// The BLAS of a build without OpenBLAS: kernels/tiled_sgemm.cpp.
#include <omp.h>

#include "engine/core/check.h"
#include "kernels/blas.h"
#include "kernels/tiled_sgemm.h"

namespace ingot::blas {

void sgemm(const Sgemm& args) {
    tiled_sgemm(args);
}

void set_num_threads(int n) {
    ENSURE(n >= 1, "blas.threads", "set_num_threads: ", n, " threads, must be at least 1");
    omp_set_num_threads(n);
}

std::string description() {
    return str("tiled loop (this build has no OpenBLAS), ", omp_get_max_threads(), " threads");
}

}  // namespace ingot::blas
