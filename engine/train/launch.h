// Who started this process, as the launcher's variables tell it. The only reader of the
// environment. Errors: launch.single_rank, launch.variable.
#pragma once

#include <string>

namespace ingot {

struct Launcher {
    std::string name = "none";  // "Open MPI", "torchrun", "Slurm"
    std::string variable;       // the one that gave world_size
    int world_size = 1;
};
Launcher read_launcher();

// This release trains on one rank: several ranks would be as many separate runs in one folder.
void require_single_rank(const Launcher& launcher);

}  // namespace ingot
