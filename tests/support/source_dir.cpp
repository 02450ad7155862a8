#include "tests/support/source_dir.h"

#include <cstdlib>

namespace ingot::test {

const std::string& source_dir() {
    static const std::string kFolder = [] {
        const char* carried = std::getenv("INGOT_SOURCE_DIR");
        return std::string(carried != nullptr ? carried : INGOT_SOURCE_DIR);
    }();
    return kFolder;
}

}  // namespace ingot::test
