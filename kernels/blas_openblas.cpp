// The BLAS of a build with OpenBLAS; the one file that includes cblas.h.
//
// The library is loaded at the first product, not linked, for two reasons. OpenBLAS picks its
// kernel set while it is loaded, from a table of CPU models that cannot know CPUs newer than the
// release: 0.3.21 takes SSE3 kernels on a Xeon of 2023, a tenth of the speed of the AVX-512 ones.
// So the choice is made here, from what the CPU can do, before the library is loaded;
// OPENBLAS_CORETYPE in the environment overrides it. And a build can be carried to a machine
// without OpenBLAS: there the tiled loop takes over, and description() says so.
#include "kernels/blas.h"

#include <cstdlib>
#include <dlfcn.h>
#include <limits>
#include <omp.h>

#include <cblas.h>

#include "engine/core/check.h"
#include "kernels/tiled_sgemm.h"

namespace ingot::blas {
namespace {

// What OpenBLAS calls its kernels for this CPU; nullptr: leave it to OpenBLAS.
const char* kernel_set() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return nullptr;
}

struct Library {
    decltype(&cblas_sgemm) sgemm = nullptr;  // nullptr: not loaded, for this reason:
    std::string problem;
    decltype(&openblas_set_num_threads) set_num_threads = nullptr;
    decltype(&openblas_get_num_threads) get_num_threads = nullptr;
    decltype(&openblas_get_config) get_config = nullptr;
    decltype(&openblas_get_corename) get_corename = nullptr;
};

template <class Function>
void find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    ENSURE(function != nullptr, "blas.symbol", "OpenBLAS has no function ", name,
           "; install OpenBLAS 0.3.15 or newer");
}

Library load() {
    Library library;
    constexpr int kKeepUsersChoice = 0;
    if (const char* kernels = kernel_set()) {
        setenv("OPENBLAS_CORETYPE", kernels, kKeepUsersChoice);
    }
    void* handle = nullptr;
    // Where it was found when building (the OpenMP flavour); RHEL's name of that; the plain name.
    for (const char* name : {INGOT_OPENBLAS_LIBRARY, "libopenblaso.so.0", "libopenblas.so.0"}) {
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (handle != nullptr) break;
        library.problem = dlerror();
    }
    if (handle == nullptr) return library;
    find(handle, "openblas_set_num_threads", library.set_num_threads);
    find(handle, "openblas_get_num_threads", library.get_num_threads);
    find(handle, "openblas_get_config", library.get_config);
    find(handle, "openblas_get_corename", library.get_corename);
    find(handle, "cblas_sgemm", library.sgemm);
    return library;
}

const Library& library() {
    static const Library kLibrary = load();
    return kLibrary;
}

blasint narrow(std::int64_t size, const char* name) {
    constexpr std::int64_t kMax = std::numeric_limits<blasint>::max();
    ENSURE(size >= 0 && size <= kMax, "matmul.size", "sgemm: ", name, " = ", size,
           ", OpenBLAS takes 0 to ", kMax, "; use a smaller batch");
    return static_cast<blasint>(size);
}

}  // namespace

void sgemm(const Sgemm& g) {
    const Library& openblas = library();
    const blasint M = narrow(g.M, "M");
    const blasint N = narrow(g.N, "N");
    const blasint K = narrow(g.K, "K");
    const blasint stride_a = narrow(g.stride_a, "stride_a");
    const blasint stride_b = narrow(g.stride_b, "stride_b");
    const blasint stride_c = narrow(g.stride_c, "stride_c");
    if (openblas.sgemm == nullptr) return tiled_sgemm(g);
    if (M == 0 || N == 0) return;
    openblas.sgemm(CblasRowMajor, g.transpose_a ? CblasTrans : CblasNoTrans,
                   g.transpose_b ? CblasTrans : CblasNoTrans, M, N, K, 1.0F, g.a, stride_a, g.b,
                   stride_b, g.accumulate ? 1.0F : 0.0F, g.c, stride_c);
}

void set_num_threads(int n) {
    ENSURE(n >= 1, "blas.threads", "set_num_threads: ", n, " threads, must be at least 1");
    omp_set_num_threads(n);
    if (library().sgemm != nullptr) library().set_num_threads(n);
}

std::string description() {
    const Library& openblas = library();
    if (openblas.sgemm == nullptr) {
        return str("tiled loop (OpenBLAS was not loaded: ", openblas.problem, "), ",
                   omp_get_max_threads(), " threads");
    }
    // The configuration text starts with the name and version; the rest is how it was built.
    const std::string config = openblas.get_config();
    const std::size_t name_end = config.find(' ');
    const std::string name = config.substr(0, config.find(' ', name_end + 1));
    return str(name, ", kernels ", openblas.get_corename(), ", ", openblas.get_num_threads(),
               " threads");
}

}  // namespace ingot::blas
