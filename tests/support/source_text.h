// C++ source, split into what the compiler reads and what people read.
#pragma once

#include <string>
#include <vector>

namespace ingot::test {

struct SourceFile {
    std::string path;  // from the repository root, with forward slashes
    std::string text;
};

// One entry a line, each as long as the line. `code` has comments and the contents of string and
// character literals blanked; `comments` has only the text of comments, without // and /* */.
struct SourceLines {
    std::vector<std::string> raw, code, comments;
};

SourceLines split_source(const std::string& text);

// The .h, .cpp, .cu, .cuh, .py and .sh files below the folders of the project, in order of path.
std::vector<SourceFile> read_sources(const std::string& root);

}  // namespace ingot::test
