// A driver library for tests/setup/test_device.py. FAKE_CUDA_FAILS names the function that fails
// (with error 999), FAKE_CUDA_DRIVER the supported CUDA version, FAKE_CUDA_DEVICES their number.
#include <cstdlib>
#include <cstring>

namespace {

int code_of(const char* function) {
    const char* failing = std::getenv("FAKE_CUDA_FAILS");
    return failing != nullptr && std::strcmp(failing, function) == 0 ? 999 : 0;
}

int number(const char* variable, int otherwise) {
    const char* value = std::getenv(variable);
    return value == nullptr ? otherwise : std::atoi(value);
}

}  // namespace

extern "C" {
int cuInit(unsigned) {
    return code_of("cuInit");
}
int cuDriverGetVersion(int* version) {
    *version = number("FAKE_CUDA_DRIVER", 13000);
    return code_of("cuDriverGetVersion");
}
int cuDeviceGetCount(int* count) {
    *count = number("FAKE_CUDA_DEVICES", 1);
    return code_of("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int) {
    *device = 0;
    return code_of("cuDeviceGet");
}
int cuDevicePrimaryCtxRetain(void**, int) {
    return code_of("cuDevicePrimaryCtxRetain");
}
int cuGetErrorString(int, const char** text) {
    *text = "a fault made for the test";
    return 0;
}
}
