// What a profiler puts into a process to see NVTX ranges, for tests/e2e/test_ranges.py: writes a
// line a range into the file $NVTX_RECORD, indented by its depth. Built as a shared library and
// named by NVTX_INJECTION64_PATH. The declarations are those of NVTX's interface for tools.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::uint32_t kCallbacks = 1;  // export table
constexpr int kCoreModule = 1;
constexpr unsigned kRangePush = 9, kRangePop = 11;

struct Callbacks {
    std::size_t size;
    int (*module_functions)(int module, void (****out_table)(), unsigned* out_size);
};

int depth = 0;
std::FILE* record = nullptr;

int push(const char* name) {
    std::fprintf(record, "%s%s\n", std::string(static_cast<std::size_t>(depth), ' ').c_str(), name);
    return depth++;
}

int pop() {
    if (depth == 0) std::fprintf(record, "a range ended that had not begun\n");
    return --depth;
}

void close_record() {
    std::fprintf(record, "open at the end: %d\n", depth);
    std::fclose(record);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*export_table)(std::uint32_t)) {
    const auto* callbacks = static_cast<const Callbacks*>(export_table(kCallbacks));
    void (***table)() = nullptr;
    unsigned size = 0;
    const char* path = std::getenv("NVTX_RECORD");
    record = path == nullptr ? nullptr : std::fopen(path, "w");
    if (record == nullptr || callbacks == nullptr ||
        callbacks->module_functions(kCoreModule, &table, &size) == 0 || size <= kRangePop) {
        return 0;
    }
    *table[kRangePush] = reinterpret_cast<void (*)()>(push);
    *table[kRangePop] = reinterpret_cast<void (*)()>(pop);
    std::atexit(close_record);
    return 1;
}
