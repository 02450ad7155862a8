#include "kernels/matmul_error.h"

#include "engine/core/check.h"

namespace ingot {
namespace {

struct Fix {
    const char* status_name;
    const char* fix;
};
constexpr Fix kFixes[] = {
    {"CUBLAS_STATUS_NOT_INITIALIZED",
     "check that the GPU has memory left (nvidia-smi) and that this cuBLASLt supports it"},
    {"CUBLAS_STATUS_ALLOC_FAILED",
     "the memory is full: end other processes on the GPU (nvidia-smi lists them), or see `--plan` "
     "for what to make smaller"},
    {"CUBLAS_STATUS_ARCH_MISMATCH", "install a cuBLASLt that supports this GPU"},
    {"CUBLAS_STATUS_NOT_SUPPORTED", "install a cuBLASLt that supports this GPU"},
    {"CUBLAS_STATUS_EXECUTION_FAILED",
     "an earlier kernel may have failed: rerun under compute-sanitizer to find the first fault, "
     "and look for the GPU's Xid in dmesg"},
};

}  // namespace

std::string cublaslt_fix(const std::string& status_name) {
    for (const Fix& known : kFixes) {
        if (status_name == known.status_name) return known.fix;
    }
    return "try another train.micro_batch or another version of cuBLASLt; report this line";
}

void fail_matmul(const MatmulFailure& failure, const MatmulKey& key) {
    fail("cuda.cublaslt", failure.call, " for the matmul ", key.text(),
         " (pass, epilogue, operands, result, set or add, alignment, N, C, OC): ",
         failure.status_name, ": ", failure.status_text, ", cuBLASLt ", failure.version, "; ",
         cublaslt_fix(failure.status_name));
}

}  // namespace ingot
