// What happens on the device before step 1: every op that a run uses has run once, so that its code
// is loaded and nothing is allocated later, and every matmul of a step has its algorithm.
#pragma once

#include <string>

#include "data/loader.h"
#include "engine/core/log.h"
#include "engine/train/optimizer.h"
#include "model/decoder.h"

namespace ingot {

// The parts of a run that are warmed up.
struct WarmUp {
    Decoder& decoder;
    ParamStore& store;
    Optimizer& optimizer;
    Tensor batch;  // (kBatchFields, B, T) i32 on the device, free for the warm-up
};

// Two micro-steps on random tokens (the second adds to the gradients, which is a matmul of its
// own), an update that the flag for non-finite steps turns into nothing, a validation batch and the
// logits of a sample. Parameters, moments and masters keep their values; gradients hold no
// meaningful ones afterwards, and the first micro-step of training overwrites them.
void warm_up_step(Stream stream, const WarmUp& parts);
void warm_up_evaluation(Stream stream, const WarmUp& parts);

// The algorithms of a step's matmuls (kernels/matmul_plan.h) around warm_up_step(): taken from the
// text file `plans` where it is given and of this GPU model and cuBLASLt, otherwise chosen by
// timing; what a text does not hold is timed, too. Written to `saved`. Says what was done. Errors:
// file.*, matmul.plan_format.
void choose_matmul_algorithms(Stream stream,
                              const WarmUp& parts,
                              const std::string& plans,
                              const std::string& saved,
                              Log& log);

}  // namespace ingot
