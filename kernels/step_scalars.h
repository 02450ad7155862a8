// What changes from one optimizer step to the next, as one small fp32 tensor on the device, so that
// a step can be captured: the host writes the first part once a step, global_norm writes the rest.
// Included by .cu files: C++17.
#pragma once

namespace ingot {

enum StepScalar : int {
    // Written by the host.
    kLearningRate = 0,
    kBiasCorrection1 = 1,  // 1 - beta1^t
    kBiasCorrection2 = 2,  // 1 - beta2^t
    kInvTokens = 3,        // 1 / number of valid targets of the global batch
    kMaxNorm = 4,          // gradient clipping; 0 = off
    // Written by clip_by_global_norm.
    kGradNorm = 5,    // norm of the mean gradient, before clipping
    kGradFactor = 6,  // what a gradient sum is multiplied with: 1/tokens and the clip factor
    kIsFinite = 7,    // 1 or 0; at 0 AdamW changes nothing
    kNumStepScalars = 8
};

}  // namespace ingot
