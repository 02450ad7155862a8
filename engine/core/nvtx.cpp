// NVTX is header-only and does nothing unless a profiler has put itself into the process.
#include <nvtx3/nvToolsExt.h>

#include "engine/core/op_range.h"

namespace ingot::nvtx {

void push(const char* name) {
    nvtxRangePushA(name);
}

void pop() noexcept {
    nvtxRangePop();
}

}  // namespace ingot::nvtx
