// Goal: a failed CUDA call is told with the call, what it was to work on, CUDA's own words and a
// fix that suits the error. Method: names in, whole messages out; on a GPU, calls that CUDA
// refuses.
#include <string>

#include <doctest/doctest.h>

#include "engine/core/check.h"
#include "engine/core/cuda_error.h"
#include "engine/core/device.h"
#include "tests/support/device_matrix.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("cuda error: what failed, on what, CUDA's words and the fix") {
    try {
        fail_cuda("cuda.call", "cudaEventSynchronize", "cudaErrorIllegalAddress",
                  "an illegal memory access was encountered");
        FAIL("fail_cuda returned");
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == "cuda.call");
        CHECK(std::string(error.what()) ==
              "cudaEventSynchronize: cudaErrorIllegalAddress: an illegal memory access was "
              "encountered; a kernel that was launched before this call failed: rerun under "
              "compute-sanitizer to find it, and look for the GPU's Xid in dmesg");
    }
    CHECK_THROWS_WITH_AS(
        fail_cuda("cuda.call", "cudaMemcpyAsync of 4096 bytes", "cudaErrorInvalidValue",
                  "invalid argument"),
        "cudaMemcpyAsync of 4096 bytes: cudaErrorInvalidValue: invalid argument; CUDA refuses "
        "these arguments: a smaller train.micro_batch may help; report this line",
        Error);
}

TEST_CASE("cuda error: the fix is that of the error") {
    const auto says = [](const char* error_name, const char* words) {
        CAPTURE(error_name);
        CHECK(cuda_fix(error_name).find(words) != std::string::npos);
    };
    says("cudaErrorLaunchFailure", "launched before this call failed");
    says("cudaErrorECCUncorrectable", "nvidia-smi -q");
    says("cudaErrorMemoryAllocation", "memory is full");
    says("cudaErrorNoKernelImageForDevice", "INGOT_CUDA_ARCHITECTURES");
    says("cudaErrorInvalidConfiguration", "refuses these arguments");
    says("cudaErrorNotYetInvented", "may have failed: rerun under compute-sanitizer");
}

TEST_CASE("cuda error: pinned memory that the host refuses is told with its bytes and the fix") {
    CHECK_THROWS_WITH_AS(
        fail_pinned_memory("loader", 1 << 20, 4096),
        "buffer loader needs 1048576 bytes of pinned host memory, which the host refused (4096 "
        "bytes of its memory are available); end other processes, allow this one more (ulimit -l, "
        "the container's memory limit), or see `--plan` for what to make smaller",
        Error);
    CHECK_THROWS_WITH_AS(fail_pinned_memory("loader", 1 << 20, -1),
                         doctest::Contains("which the host refused; end other processes"), Error);
}

TEST_CASE(
    "cuda error: a buffer that no GPU can hold is refused with its bytes, and the next fits") {
    if (!has_gpu()) return;
    const auto context = make_context(Device::cuda);
    constexpr std::int64_t kBytes = std::int64_t{1} << 50;
    CHECK_THROWS_WITH_AS(Buffer(*context, kBytes, "giant"),
                         doctest::Contains("buffer giant needs 1125899906842624 bytes"), Error);
    std::string pinned;
    try {
        const Buffer buffer(*context, kBytes, "giant", Buffer::Kind::pinned);
    } catch (const Error& error) {
        pinned = error.what();
    }
    CAPTURE(pinned);
    CHECK(pinned.find("buffer giant") != std::string::npos);
    CHECK(pinned.find("1125899906842624 bytes") != std::string::npos);
    CHECK(pinned.find("; ") != std::string::npos);  // the fix
    CHECK(Buffer(*context, 1024, "small").data() != nullptr);
}
