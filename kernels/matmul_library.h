// One matmul as kernels/matmul.cu hands it to cuBLASLt: the key that its algorithm is chosen by,
// and the operands in cuBLASLt's column-major order. kernels/matmul_library.cu keeps the plans,
// times algorithms when asked to (kernels/matmul_plan.h), and gives shapes that cuBLASLt has no
// algorithm for to the engine's own kernel.
#pragma once

#include "kernels/matmul_general.h"
#include "kernels/matmul_plan_table.h"

namespace ingot::cuda {

struct LibraryMatmul {
    MatmulKey key;
    const void* a;
    const void* b;
    void* d;
    const void* bias;
    void* aux;
    std::int64_t d_bytes;
    GeneralMatmul general;  // the same product for the engine's own kernel
};
void run_matmul(Stream stream, const LibraryMatmul& call);

}  // namespace ingot::cuda
