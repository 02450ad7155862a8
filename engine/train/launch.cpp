#include "engine/train/launch.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "engine/core/check.h"

namespace ingot {
namespace {

struct LauncherVariable {
    const char* variable;
    const char* launcher;
};
constexpr LauncherVariable kWorldSizeVariables[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI"},
    {"PMI_SIZE", "MPICH"},
    {"WORLD_SIZE", "torchrun"},
    {"SLURM_NTASKS", "Slurm"},
};

}  // namespace

Launcher read_launcher() {
    for (const LauncherVariable& known : kWorldSizeVariables) {
        const char* text = std::getenv(known.variable);
        if (text == nullptr) continue;
        Launcher launcher{known.launcher, known.variable, 0};
        const char* end = text + std::strlen(text);
        const auto result = std::from_chars(text, end, launcher.world_size);
        ENSURE(result.ec == std::errc{} && result.ptr == end && launcher.world_size > 0,
               "launch.variable", "the environment has ", known.variable, " = ", text,
               ", which is not a number of ranks; unset it");
        return launcher;
    }
    return {};
}

void require_single_rank(const Launcher& launcher) {
    ENSURE(launcher.world_size == 1, "launch.single_rank", launcher.name, " started ",
           launcher.world_size, " ranks (", launcher.variable, " = ", launcher.world_size,
           "), but this release trains on 1 rank; start ./train_gpt without a launcher");
}

}  // namespace ingot
