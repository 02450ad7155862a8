// sgemm as a cache-tiled loop with OpenMP: the CPU backend of a build without OpenBLAS. Always
// compiled, so that it is tested in every build. The result does not depend on the number of
// threads: one thread computes a tile of c, over k in ascending order.
#pragma once

#include "kernels/blas.h"

namespace ingot::blas {

void tiled_sgemm(const Sgemm& args);

}  // namespace ingot::blas
