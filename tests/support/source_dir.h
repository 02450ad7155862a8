// Where tests find the files they read: the repository.
#pragma once

#include <string>

namespace ingot::test {

// INGOT_SOURCE_DIR of the environment, for a build that was carried to another machine; without it
// the folder this build was made from.
const std::string& source_dir();

}  // namespace ingot::test
