// The rules of this tree that a program can check: layers, vendor headers, calls that libraries may
// not make, the files an op consists of, comments, names, lengths. Taste is left to readers.
// Each problem reads `file:line: problem; fix`.
#pragma once

#include <string>
#include <vector>

#include "tests/support/source_text.h"

namespace ingot::test {

// What is wrong inside one file.
std::vector<std::string> problems_in(const SourceFile& file);

// What the tree lacks: the .cpp, .cu, test and benchmark of every op of kernels/. A tree without
// any .cu, or without any benchmark, is not asked for them.
std::vector<std::string> missing_files(const std::vector<SourceFile>& files);

}  // namespace ingot::test
