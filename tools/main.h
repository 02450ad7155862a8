// The one catcher: every program's main hands its body over and gets an exit status back.
#pragma once

#include <functional>

namespace ingot {

// 0 when body returns; otherwise prints "[host] error: message [code]" to stderr and returns 1.
int run_main(const std::function<int()>& body);

}  // namespace ingot
