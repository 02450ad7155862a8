// Goal: the tree keeps its own rules: who includes whom, where vendor headers may appear, what an
// op consists of, what libraries may not call, and what neither comments nor names may hold.
// Method: every source file is read once; each rule is also fed a text that breaks it and one that
// does not.
#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/source_dir.h"
#include "tests/support/source_rules.h"

using namespace ingot::test;

namespace {

std::string joined(const std::vector<std::string>& problems) {
    std::string text;
    for (const std::string& problem : problems)
        text += problem + "\n";
    return text;
}

std::string problems_of(const std::string& path, const std::string& text) {
    return joined(problems_in({path, text}));
}

struct Case {
    const char* path;
    const char* text;
    const char* problem;  // how the one problem begins, with file and line
};

void check_cases(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
        const std::string text = c.text;
        CAPTURE(text);
        const std::string found = problems_of(c.path, text);
        CAPTURE(found);
        CHECK(found.compare(0, std::string(c.problem).size(), c.problem) == 0);
        CHECK(std::count(found.begin(), found.end(), '\n') == 1);
        CHECK(found.find("; ") != std::string::npos);  // a problem comes with its fix
    }
}

void check_clean(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) {
        CAPTURE(file.path);
        CAPTURE(file.text);
        CHECK(joined(problems_in(file)) == "");
    }
}

}  // namespace

TEST_CASE("layering: the tree has no problem") {
    const std::vector<SourceFile> files = read_sources(source_dir());
    CHECK(files.size() > 50);
    std::vector<std::string> problems = missing_files(files);
    for (const SourceFile& file : files) {
        for (const std::string& problem : problems_in(file))
            problems.push_back(problem);
    }
    for (const std::string& problem : problems)
        FAIL_CHECK(problem);
}

TEST_CASE("layering: a layer includes only what lies below it") {
    check_cases({
        {"engine/core/x.h", "\n#include \"kernels/cast.h\"\n",
         "engine/core/x.h:2: engine/core/ includes \"kernels/cast.h\" of a layer it may not know"},
        {"kernels/x.cpp", "#include \"comm/communicator.h\"\n",
         "kernels/x.cpp:1: kernels/ includes"},
        {"comm/x.cpp", "#include \"kernels/cast.h\"\n", "comm/x.cpp:1: comm/ includes"},
        {"data/x.cpp", "#include \"engine/train/config.h\"\n", "data/x.cpp:1: data/ includes"},
        {"model/x.cpp", "#include \"data/loader.h\"\n", "model/x.cpp:1: model/ includes"},
        {"model/x.h", "#include \"comm/communicator.h\"\n", "model/x.h:1: model/ includes"},
        {"engine/train/x.h", "#include \"tools/y.h\"\n", "engine/train/x.h:1: engine/ includes"},
        {"tools/x.cpp", "#include \"tests/support/compare.h\"\n", "tools/x.cpp:1: tools/ includes"},
        {"kernels/x.cpp", "#include \"cast.h\"\n",
         "kernels/x.cpp:1: includes \"cast.h\", which is no path from the root"},
    });
    check_clean(
        {{"model/x.cpp", "#include \"kernels/cast.h\"\n#include \"engine/core/rng.h\"\n"},
         {"engine/train/x.cpp", "#include \"data/loader.h\"\n#include \"model/decoder.h\"\n"},
         {"tests/kernels/x.cpp", "#include \"bench/bench.h\"\n"},
         {"kernels/x.cpp", "// #include \"comm/communicator.h\" would be wrong.\n"}});
}

TEST_CASE("layering: vendor headers stay in their files") {
    check_cases({
        {"kernels/cast.cpp", "#include <cuda_runtime.h>\n",
         "kernels/cast.cpp:1: includes <cuda_runtime.h> outside its quarantine; only "},
        {"engine/core/device.cpp", "#include <cuda_bf16.h>\n",
         "engine/core/device.cpp:1: includes"},
        {"kernels/cast.cu", "#include <cublasLt.h>\n", "kernels/cast.cu:1: includes <cublasLt.h>"},
        {"kernels/attention.cu", "#include <cudnn.h>\n", "kernels/attention.cu:1: includes"},
        {"comm/mpi.cpp", "#include <nccl.h>\n", "comm/mpi.cpp:1: includes <nccl.h>"},
        {"engine/train/trainer.cpp", "#include <mpi.h>\n", "engine/train/trainer.cpp:1: includes"},
        {"kernels/matmul.cpp", "#include <cblas.h>\n", "kernels/matmul.cpp:1: includes <cblas.h>"},
        {"engine/train/config.h", "#include <nlohmann/json.hpp>\n",
         "engine/train/config.h:1: includes <nlohmann/json.hpp>"},
        {"model/decoder.cpp", "#include <nlohmann/json.hpp>\n", "model/decoder.cpp:1: includes"},
        {"engine/core/file.cpp", "#include <xxhash.h>\n", "engine/core/file.cpp:1: includes"},
        {"bench/bench.cpp", "#include <doctest/doctest.h>\n", "bench/bench.cpp:1: includes"},
        {"engine/train/config.cpp", "#include <CLI/CLI.hpp>\n",
         "engine/train/config.cpp:1: includes"},
    });
    check_clean({{"kernels/device/reduce.cuh", "#include <cuda_runtime.h>\n"},
                 {"engine/core/device_cuda.cpp", "#include <cuda_runtime.h>\n"},
                 {"kernels/matmul.cu", "#include <cublasLt.h>\n#include <cuda_runtime.h>\n"},
                 {"comm/nccl.cpp", "#include <nccl.h>\n"},
                 {"comm/mpi.cpp", "#include <mpi.h>\n"},
                 {"kernels/blas_openblas.cpp", "#include <cblas.h>\n"},
                 {"engine/train/config.cpp", "#include <nlohmann/json.hpp>\n"},
                 {"engine/train/config.h", "#include <nlohmann/json_fwd.hpp>\n"},
                 {"model/families/gpt2.cpp", "#include <nlohmann/json.hpp>\n"},
                 {"data/token_hash.cpp", "#include <xxhash.h>\n"},
                 {"tests/core/test_rng.cpp", "#include <doctest/doctest.h>\n"}});
}

TEST_CASE("layering: libraries neither end the program, nor print, nor read the environment") {
    check_cases({
        {"engine/core/x.cpp", "void f() {\n    exit(1);\n}\n",
         "engine/core/x.cpp:2: a library calls exit(); throw through ENSURE"},
        {"kernels/x.cu", "if (x) std::abort();\n", "kernels/x.cu:1: a library calls abort()"},
        {"comm/x.cpp", "    ::abort ();\n", "comm/x.cpp:1: a library calls abort()"},
        {"data/x.cpp", "std::printf(\"%d\", 1);\n", "data/x.cpp:1: a library calls printf()"},
        {"model/x.cpp", "fprintf(stderr, \"x\");\n", "model/x.cpp:1: a library calls fprintf()"},
        {"model/x.cpp", "return getenv(\"X\");\n", "model/x.cpp:1: a library calls getenv()"},
        {"kernels/x.cpp", "assert(a == b);\n", "kernels/x.cpp:1: a library calls assert()"},
    });
    check_clean(
        {{"comm/x.cpp", "communicator->abort();\nvoid Control::abort() {}\nvoid abort(int);\n"},
         {"kernels/x.cpp", "static_assert(a == b, \"why\");\nsnprintf(b, 4, \"x\");\n"},
         {"kernels/x.cpp", "// exit(1) and abort() end a program.\nf(\"exit(1)\");\n"},
         {"engine/train/launch.cpp", "const char* rank = std::getenv(\"RANK\");\n"},
         {"tools/x.cpp", "int main() { std::printf(\"x\"); exit(1); }\n"}});
}

TEST_CASE("layering: macros hide no control flow and choose no backend") {
    check_cases({
        {"kernels/x.h", "#define CHECK(x) \\\n    if (!(x)) return\n",
         "kernels/x.h:1: a macro hides a return or goto"},
        {"kernels/x.h", "#define LOG0(x) if (rank == 0) log(x)\n",
         "kernels/x.h:1: a macro holds an if without do { } while"},
        {"model/x.cpp", "#ifdef INGOT_CUDA\n#endif\n",
         "model/x.cpp:1: chooses by the macro INGOT_CUDA; choose the source file in CMake"},
        {"comm/x.cpp", "#if defined(USE_MPI) && defined(__linux__)\n#endif\n",
         "comm/x.cpp:1: chooses by the macro USE_MPI"},
        {"comm/x.cpp", "#undef MPI_CXX\n", "comm/x.cpp:1: #undef"},
        {"comm/x.cpp", "int x;\n#include <string>\n", "comm/x.cpp:2: includes after code"},
        {"comm/x.h", "namespace std {\n", "comm/x.h:1: opens namespace std"},
    });
    check_clean({{"engine/core/rng.h",
                  "#ifdef __CUDACC__\n#define BOTH __host__\n#else\n#define BOTH\n#endif\n"},
                 {"engine/core/check.h",
                  "#define ENSURE(c, ...) \\\n    do {  \\\n        if (!(c)) fail(__VA_ARGS__); "
                  "\\\n    } while (0)\n"},
                 {"tests/support/main.cpp", "#ifdef INGOT_CUDA\n#endif\n"}});
}

TEST_CASE("layering: comments hold neither leftovers nor code, names neither praise nor versions") {
    check_cases({
        {"tests/x.cpp", "// FIXME: wrong.\n", "tests/x.cpp:1: a comment says FIXME"},
        {"tests/x.cpp", "int x;  /* XXX */\n", "tests/x.cpp:1: a comment says XXX"},
        {"data/x.cpp", "// A hack.\n", "data/x.cpp:1: a comment says hack"},
        {"data/x.cpp", "// We simply copy.\n", "data/x.cpp:1: a comment says simply"},
        {"data/x.cpp", "// TODO: later.\n", "data/x.cpp:1: a TODO without a number"},
        {"data/x.cpp", "int x;\n// f(x, 1);\n", "data/x.cpp:2: commented-out code"},
        {"data/x.cpp", "// const int x = y + 1;\n", "data/x.cpp:1: commented-out code"},
        {"kernels/x.cu", "void layernorm_forward_kernel6(float* x);\n",
         "kernels/x.cu:1: the name layernorm_forward_kernel6 is praise or a version"},
        {"kernels/x.cpp", "void sum_fast(float* x);\n", "kernels/x.cpp:1: the name sum_fast is"},
        {"kernels/x.h", "template <class A, class B, class C, int D, int E>\n",
         "kernels/x.h:1: 5 template parameters, at most 4"},
    });
    check_clean({{"data/x.cpp", "// TODO(#12): later. Also TODO #7.\n"},
                 {"data/x.cpp", "// Prose may end in a semicolon (as here);\n// and go on.\n"},
                 {"data/x.cpp", "//   logits = inp @ weight^T;\n"},
                 {"data/x.cpp", "char c = '\"';  // FIX the quote\nf(\"// XXX\");\n"},
                 {"data/x.cpp", "const char* t = R\"(\n// FIXME\nexit(1);\n)\";\n"},
                 {"data/x.cpp", "int breakfast = 1'000'000;  // A name.\n"}});
}

TEST_CASE("layering: an op has a range of its name") {
    const char* const without =
        "void scale(Stream stream, const Scale& args) {\n    check(stream, args);\n}\n";
    const char* const of_another =
        "\nvoid scale(Stream stream, const Scale& args) {\n"
        "    const OpRange range(stream, \"shift\", {});\n}\n";
    const char* const with =
        "void scale(Stream stream, const Scale& args) {\n"
        "    const OpRange range(\n        stream, \"scale\", {});\n}\n";
    check_cases({
        {"kernels/x.cpp", without, "kernels/x.cpp:1: the op scale has no range of its name"},
        {"kernels/x.cpp", of_another, "kernels/x.cpp:2: the op scale has no range of its name"},
    });
    check_clean({{"kernels/x.cpp", with},
                 {"kernels/x.cpp", "void check(Stream stream, const Scale& a) {\n}\n"},
                 {"model/x.cpp", without}});
}

TEST_CASE("layering: files stay short") {
    const auto lines = [](int count) {
        std::string text;
        for (int i = 0; i < count; ++i)
            text += "\n";
        return text;
    };
    check_clean(
        {{"kernels/x.cu", lines(500)}, {"tools/x.cpp", lines(150)}, {"tools/x.py", lines(500)}});
    CHECK(problems_of("kernels/x.cu", lines(501)) ==
          "kernels/x.cu:501: 501 lines, at most 500; split the file where its subject changes\n");
    CHECK(problems_of("tools/x.py", lines(501)).find("501 lines, at most 500") !=
          std::string::npos);
    CHECK(problems_of("tools/x.cpp", lines(151)).find("151 lines in a main, at most 150") !=
          std::string::npos);
}

TEST_CASE("layering: an op has both backends, a test and a benchmark") {
    const SourceFile op{"kernels/scale.h",
                        "void scale(Stream stream, const Scale& args);\nnamespace cuda {\n}\n"};
    const SourceFile composition{"kernels/chain.h",
                                 "void chain(Stream stream, const Chain& args);\n"};
    const SourceFile helper{"kernels/helper.h", "void require(Stream stream, const Tensor& x);\n"};
    const SourceFile cuda_helper{
        "kernels/scale_general.h",
        "namespace ingot::cuda {\nvoid general(Stream stream, const Scale& args);\n}\n"};
    const auto empty = [](const char* path) { return SourceFile{path, ""}; };
    const std::vector<SourceFile> whole = {
        op, empty("kernels/scale.cpp"), empty("tests/kernels/test_scale.cpp"),
        empty("kernels/scale.cu"), empty("bench/kernels/bench_scale.cpp")};
    CHECK(joined(missing_files(whole)) == "");
    // Of another op, so that the tree has files of this kind.
    const std::vector<SourceFile> others = {empty("kernels/other.cu"),
                                            empty("bench/kernels/bench_other.cpp")};
    for (std::size_t i = 1; i < whole.size(); ++i) {
        std::vector<SourceFile> part = whole;
        part.erase(part.begin() + static_cast<std::ptrdiff_t>(i));
        part.insert(part.end(), others.begin(), others.end());
        CHECK(joined(missing_files(part)) ==
              "kernels/scale.h:1: the op has no " + whole[i].path +
                  "; an op is its header, both backends, a test and a benchmark\n");
    }
    CHECK(missing_files({op}).size() == 2);
    CHECK(missing_files({helper}).empty());
    CHECK(missing_files({cuda_helper}).empty());
    CHECK(joined(missing_files({composition, others[0], others[1]})).find("chain.cu") ==
          std::string::npos);
    CHECK(missing_files({composition, others[0], others[1]}).size() == 3);
}
