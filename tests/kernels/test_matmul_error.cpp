// Goal: a failed call of cuBLASLt is told with the call, the matmul and the fix. Method: names of a
// status in, whole messages out; on a GPU, calls that cuBLASLt refuses before it runs anything.
#include <string>

#include <doctest/doctest.h>

#include "kernels/matmul.h"
#include "kernels/matmul_error.h"
#include "kernels/matmul_plan.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

const MatmulKey kKey{MatmulPass::forward,
                     MatmulEpilogue::bias,
                     DType::bf16,
                     DType::bf16,
                     false,
                     16,
                     65536,
                     768,
                     2304};

}  // namespace

TEST_CASE("matmul error: the call, the matmul, cuBLASLt's words and the fix") {
    try {
        fail_matmul({"cublasLtMatmul", "CUBLAS_STATUS_INVALID_VALUE", "an invalid value was passed",
                     130100},
                    kKey);
        FAIL("fail_matmul returned");
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == "cuda.cublaslt");
        CHECK(std::string(error.what()) ==
              "cublasLtMatmul for the matmul forward bias bf16 bf16 set 16 65536 768 2304 (pass, "
              "epilogue, operands, result, set or add, alignment, N, C, OC): "
              "CUBLAS_STATUS_INVALID_VALUE: an invalid value was passed, cuBLASLt 130100; try "
              "another train.micro_batch or another version of cuBLASLt; report this line");
    }
}

TEST_CASE("matmul error: the fix is that of the status") {
    const auto says = [](const char* status_name, const char* words) {
        CAPTURE(status_name);
        CHECK(cublaslt_fix(status_name).find(words) != std::string::npos);
    };
    says("CUBLAS_STATUS_NOT_INITIALIZED", "has memory left (nvidia-smi)");
    says("CUBLAS_STATUS_ALLOC_FAILED", "see `--plan`");
    says("CUBLAS_STATUS_ARCH_MISMATCH", "supports this GPU");
    says("CUBLAS_STATUS_NOT_SUPPORTED", "supports this GPU");
    says("CUBLAS_STATUS_EXECUTION_FAILED", "rerun under compute-sanitizer");
    says("CUBLAS_STATUS_INTERNAL_ERROR", "report this line");
}

// cuBLASLt's heuristic takes no request for 0 algorithms; the public matmul_begin_tuning() makes
// none, the one of the CUDA backend does as it is told.
TEST_CASE("matmul error: a request that cuBLASLt refuses names call, matmul and fix") {
    if constexpr (kHasCuda) {
        if (!has_gpu()) return;
        const auto context = make_context(Device::cuda);
        const Stream stream = context->compute_stream();
        const TestTensor inp(*context, DType::bf16, {64, 32}, random_values("inp", 64 * 32));
        const TestTensor weight(*context, DType::bf16, {48, 32}, random_values("weight", 48 * 32));
        const TestTensor out(*context, DType::bf16, {64, 48});
        const MatmulForward args{
            .out = out, .pre_gelu = {}, .inp = inp, .weight = weight, .bias = {}};
        cuda::matmul_begin_tuning(stream, {.num_candidates = 0, .num_repeats = 1});
        std::string message;
        try {
            matmul_forward(stream, args);
        } catch (const Error& error) {
            message = error.what();
        }
        CAPTURE(message);
        CHECK(message.rfind("cublasLtMatmulAlgoGetHeuristic for the matmul forward none bf16 bf16 "
                            "set 16 64 32 48 (pass, ",
                            0) == 0);
        CHECK(message.find("CUBLAS_STATUS_INVALID_VALUE: ") != std::string::npos);
        CHECK(message.find("; try another train.micro_batch") != std::string::npos);
        matmul_end_tuning(stream);
        CHECK_NOTHROW(matmul_forward(stream, args));  // nothing of it is left
        context->synchronize();
    }
}
