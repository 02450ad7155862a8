// Goal: several ranks are refused, because this release would run them as separate trainings.
#include <cstdlib>

#include <doctest/doctest.h>

#include "engine/core/check.h"
#include "engine/train/launch.h"

using namespace ingot;

TEST_CASE("launch: one rank is fine, 32 are refused naming the launcher") {
    CHECK_NOTHROW(require_single_rank({}));
    CHECK_THROWS_WITH_AS(require_single_rank({"Open MPI", "OMPI_COMM_WORLD_SIZE", 32}),
                         "Open MPI started 32 ranks (OMPI_COMM_WORLD_SIZE = 32), but this release "
                         "trains on 1 rank; start ./train_gpt without a launcher",
                         Error);
}

TEST_CASE("launch: the launcher's variable is read, nonsense in it is refused") {
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    CHECK(read_launcher().world_size == 4);
    CHECK(read_launcher().name == "Open MPI");
    setenv("OMPI_COMM_WORLD_SIZE", "four", 1);
    CHECK_THROWS_WITH_AS(read_launcher(),
                         doctest::Contains("OMPI_COMM_WORLD_SIZE = four, which is not a number"),
                         Error);
    unsetenv("OMPI_COMM_WORLD_SIZE");
}
