// Steers tests/core/fake_nvml.cpp, the management library that tests load in place of the driver's.
#pragma once

#include <cstdint>
#include <dlfcn.h>
#include <filesystem>
#include <string>

#include "engine/core/check.h"

namespace ingot::test {

class FakeNvml {
  public:
    static constexpr const char* kPciBusId = "0000:3B:00.0";

    // With all values unset.
    FakeNvml() : handle_(dlopen(path().c_str(), RTLD_NOW)) {
        ENSURE(handle_ != nullptr, "test.fake_nvml", path(), " cannot be loaded");
        function<void()>("fake_nvml_reset")();
    }
    ~FakeNvml() { dlclose(handle_); }
    FakeNvml(const FakeNvml&) = delete;
    FakeNvml& operator=(const FakeNvml&) = delete;

    // Beside the test program, also in a build that was carried.
    static std::string path() {
        return (std::filesystem::canonical("/proc/self/exe").parent_path() / "libfake_nvml.so")
            .string();
    }
    void set(const char* name, std::int64_t value) {
        function<void(const char*, std::int64_t)>("fake_nvml_set")(name, value);
    }
    std::int64_t get(const char* name) {
        return function<std::int64_t(const char*)>("fake_nvml_get")(name);
    }
    void add_process(unsigned pid, unsigned long long used_bytes) {
        function<void(unsigned, unsigned long long)>("fake_nvml_add_process")(pid, used_bytes);
    }

  private:
    template <class Function>
    Function* function(const char* name) {
        return reinterpret_cast<Function*>(dlsym(handle_, name));
    }

    void* handle_;
};

}  // namespace ingot::test
