#include "kernels/matmul_plan.h"

namespace ingot {

void matmul_begin_tuning(Stream stream, const MatmulTuning& options) {
    ENSURE(options.num_candidates >= 1 && options.num_repeats >= 1, "matmul.tuning",
           "matmul_begin_tuning: num_candidates = ", options.num_candidates,
           ", num_repeats = ", options.num_repeats, "; both must be at least 1");
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) cuda::matmul_begin_tuning(stream, options);
    }
}

void matmul_end_tuning(Stream stream) {
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) cuda::matmul_end_tuning(stream);
    }
}

std::string matmul_export_plans(Stream stream) {
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::matmul_export_plans(stream);
    }
    return "";
}

void matmul_import_plans(Stream stream, const std::string& text) {
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) cuda::matmul_import_plans(stream, text);
    }
}

}  // namespace ingot
