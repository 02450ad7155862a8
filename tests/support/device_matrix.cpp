#include "tests/support/device_matrix.h"

#include <cstdlib>
#include <iostream>
#include <string>

namespace ingot::test {

std::vector<Device> test_devices() {
    std::vector<Device> devices = {Device::cpu};
    if (!kHasCuda) return devices;
    try {
        Context::make_cuda(0);
        devices.push_back(Device::cuda);
    } catch (const Error& error) {
        const char* required = std::getenv("INGOT_REQUIRE_CUDA");
        if (required != nullptr && std::string(required) == "1") throw;
        static const bool kPrinted = [&] {
            std::cout << "[skipped] CUDA cases: " << error.what() << std::endl;
            return true;
        }();
        (void)kPrinted;
    }
    return devices;
}

bool has_gpu() {
    return test_devices().size() > 1;
}

std::unique_ptr<Context> make_context(Device device) {
    return device == Device::cuda ? Context::make_cuda(0) : Context::make_cpu();
}

}  // namespace ingot::test
