#include "engine/core/cuda_error.h"

#include "engine/core/check.h"

namespace ingot {
namespace {

constexpr const char* kEarlierKernel =
    "a kernel that was launched before this call failed: rerun under compute-sanitizer to find it, "
    "and look for the GPU's Xid in dmesg";
constexpr const char* kHardware =
    "the GPU or its connection failed: look for its Xid in dmesg and for errors in nvidia-smi -q, "
    "and run on another GPU";
constexpr const char* kNoMemory =
    "the GPU's memory is full: end other processes on it (nvidia-smi lists them), or see `--plan` "
    "for what to make smaller";
constexpr const char* kNoCode =
    "this build has no code for this GPU: add its compute capability to INGOT_CUDA_ARCHITECTURES "
    "and build again, or update the driver";
constexpr const char* kRefused =
    "CUDA refuses these arguments: a smaller train.micro_batch may help; report this line";
constexpr const char* kUnknown =
    "an earlier kernel may have failed: rerun under compute-sanitizer to find the first fault, and "
    "look for the GPU's Xid in dmesg";

struct Fix {
    const char* error_name;
    const char* fix;
};
constexpr Fix kFixes[] = {
    {"cudaErrorIllegalAddress", kEarlierKernel},
    {"cudaErrorMisalignedAddress", kEarlierKernel},
    {"cudaErrorInvalidAddressSpace", kEarlierKernel},
    {"cudaErrorInvalidPc", kEarlierKernel},
    {"cudaErrorIllegalInstruction", kEarlierKernel},
    {"cudaErrorHardwareStackError", kEarlierKernel},
    {"cudaErrorLaunchFailure", kEarlierKernel},
    {"cudaErrorLaunchTimeout", kEarlierKernel},
    {"cudaErrorECCUncorrectable", kHardware},
    {"cudaErrorNvlinkUncorrectable", kHardware},
    {"cudaErrorContained", kHardware},
    {"cudaErrorMemoryAllocation", kNoMemory},
    {"cudaErrorNoKernelImageForDevice", kNoCode},
    {"cudaErrorInvalidDeviceFunction", kNoCode},
    {"cudaErrorUnsupportedPtxVersion", kNoCode},
    {"cudaErrorInvalidValue", kRefused},
    {"cudaErrorInvalidConfiguration", kRefused},
    {"cudaErrorLaunchOutOfResources", kRefused},
};

}  // namespace

std::string cuda_fix(const std::string& error_name) {
    for (const Fix& known : kFixes) {
        if (error_name == known.error_name) return known.fix;
    }
    return kUnknown;
}

void fail_cuda(const char* code,
               const std::string& what,
               const char* error_name,
               const char* error_text) {
    fail(code, what, ": ", error_name, ": ", error_text, "; ", cuda_fix(error_name));
}

void fail_pinned_memory(const std::string& buffer,
                        std::int64_t size_bytes,
                        std::int64_t available_bytes) {
    const std::string available =
        available_bytes < 0 ? ""
                            : str(" (", available_bytes, " bytes of its memory are available)");
    fail("memory.out_of_memory", "buffer ", buffer, " needs ", size_bytes,
         " bytes of pinned host memory, which the host refused", available,
         "; end other processes, allow this one more (ulimit -l, the container's memory limit), or "
         "see `--plan` for what to make smaller");
}

}  // namespace ingot
