// What to say when a call of cuBLASLt fails. No CUDA in here: kernels/matmul_library.cu passes the
// names that cuBLASLt has for a status. Included by .cu files: C++17.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/matmul_plan_table.h"

namespace ingot {

struct MatmulFailure {
    const char* call;         // "cublasLtMatmul"
    const char* status_name;  // "CUBLAS_STATUS_INVALID_VALUE"
    const char* status_text;
    std::size_t version;  // of cuBLASLt: 130100
};

// Throws cuda.cublaslt with the call, the matmul that it was for, cuBLASLt's words and the fix.
[[noreturn]] void fail_matmul(const MatmulFailure& failure, const MatmulKey& key);

// The fix for a status, by its name.
std::string cublaslt_fix(const std::string& status_name);

}  // namespace ingot
