#include "tools/main.h"

#include <csignal>
#include <exception>
#include <iostream>

#include "engine/core/check.h"
#include "engine/core/host.h"

namespace ingot {

int run_main(const std::function<int()>& body) {
    // Whoever reads our output may go away (`| head`, a closed terminal): a run and its log go on.
    std::signal(SIGPIPE, SIG_IGN);
    // A file beyond `ulimit -f` is an error that names the file, like a full disk.
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        return body();
    } catch (const Error& error) {
        std::cerr << "[rank 0 " << host_name() << "] error: " << error.what() << " ["
                  << error.code() << "]" << std::endl;
    } catch (const std::exception& error) {
        std::cerr << "[rank 0 " << host_name() << "] internal error: " << error.what()
                  << " [internal]" << std::endl;
    }
    return 1;
}

}  // namespace ingot
