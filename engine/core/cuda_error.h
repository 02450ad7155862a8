// What to say when a call of the CUDA runtime fails, or the host has no memory to pin. No CUDA in
// here: callers pass the names that the runtime has for an error. Included by .cu files: C++17.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

// Throws (code) "what: error_name: error_text; fix", where `what` is the call and what it was to
// work on: "cudaMemcpyAsync of 4096 bytes".
[[noreturn]] void fail_cuda(const char* code,
                            const std::string& what,
                            const char* error_name,
                            const char* error_text);

// The fix for an error, by the name that cudaGetErrorName() gives it.
std::string cuda_fix(const std::string& error_name);

// memory.out_of_memory for memory that the device copies from and to. `available_bytes`: what the
// host can give without swapping; below 0 when it is not known.
[[noreturn]] void fail_pinned_memory(const std::string& buffer,
                                     std::int64_t size_bytes,
                                     std::int64_t available_bytes);

}  // namespace ingot
