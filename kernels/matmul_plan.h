// Which cuBLASLt algorithm each matmul takes: chosen by timing in an explicit phase before step 0,
// written to the run folder, and taken from there on resume, so that a run keeps its bits.
//
// A plan belongs to a shape: pass, epilogue, dtypes, N, C, OC, alignment. Outside the phase a new
// shape takes the first algorithm that cuBLASLt's heuristic offers; a shape that cuBLASLt has no
// algorithm for takes the engine's own tiled kernel ("general" in the text). Split sums that add
// into the output in any order are never offered.
//
// On the CPU there is nothing to choose: these do nothing, and the text is empty.
#pragma once

#include <string>

#include "engine/core/device.h"

namespace ingot {

struct MatmulTuning {
    int num_candidates = 16;  // asked of the heuristic, at least 1
    int num_repeats = 5;      // timed runs of a candidate, at least 1; their median counts
};

// From here on, each matmul whose shape has no timed or imported plan times its candidates on its
// own arguments, drops those whose bits differ between two runs, and keeps the fastest. The host
// waits, and accumulated outputs hold no meaningful values afterwards: run a forward and a backward
// pass in this phase and discard its gradients. Errors: matmul.tuning.
void matmul_begin_tuning(Stream stream, const MatmulTuning& options);
void matmul_end_tuning(Stream stream);

// One line a plan, in a fixed order, after lines that name the cuBLASLt version and the GPU.
std::string matmul_export_plans(Stream stream);

// Takes the plans of `text`; those of shapes already planned are replaced. An algorithm is checked
// when its matmul first runs. Errors: matmul.plan_format; matmul.plan_device when the text is of
// another GPU model or cuBLASLt version (tune again: bits may differ).
void matmul_import_plans(Stream stream, const std::string& text);

namespace cuda {
void matmul_begin_tuning(Stream stream, const MatmulTuning& options);
void matmul_end_tuning(Stream stream);
std::string matmul_export_plans(Stream stream);
void matmul_import_plans(Stream stream, const std::string& text);
}  // namespace cuda

}  // namespace ingot
