// The plans of cuBLASLt: descriptions, choice of algorithms, launches. It thinks column-major: a
// row-major (R, S) matrix is its (S, R) matrix with leading dimension S. So each row-major product
// D = X Y becomes D^T = Y^T X^T:
//
//   fprop  out^T (OC, N)  = weight (C, OC)^T   inp^T (C, N)       m = OC, n = N,  k = C
//   dgrad  dinp^T (C, N)  = weight (C, OC)     dout^T (OC, N)     m = C,  n = N,  k = OC
//   wgrad  dweight^T (C, OC) = inp^T (C, N)    dout^T (OC, N)^T   m = C,  n = OC, k = N
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include "kernels/device/launch.cuh"
#include "kernels/matmul.h"
#include "kernels/matmul_error.h"
#include "kernels/matmul_library.h"
#include "kernels/matmul_plan.h"

namespace ingot::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* call, const MatmulKey& key) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail_matmul({call, cublasLtGetStatusName(status), cublasLtGetStatusString(status),
                 cublasLtGetVersion()},
                key);
}

template <auto Destroy>
struct Destroyer {
    template <class Handle>
    void operator()(Handle handle) const {
        Destroy(handle);
    }
};
template <class Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The descriptions are made at the first call; an imported plan has only its choice before.
struct Plan {
    Description description;
    Layout a, b, d;
    MatmulChoice choice;
};

cudaDataType_t type_of(DType dtype) {
    return dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

std::array<std::uint64_t, 8> words_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::array<std::uint64_t, 8> words;
    static_assert(sizeof(words) == sizeof(algorithm), "cuBLASLt stores an algorithm in 64 bytes");
    std::memcpy(words.data(), &algorithm, sizeof(words));
    return words;
}

template <class Value>
void set(const MatmulKey& key,
         cublasLtMatmulDesc_t description,
         cublasLtMatmulDescAttributes_t what,
         Value value) {
    check_lt(cublasLtMatmulDescSetAttribute(description, what, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute", key);
}

template <class Value>
void set(const MatmulKey& key,
         cublasLtMatmulPreference_t preference,
         cublasLtMatmulPreferenceAttributes_t what,
         Value value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)),
             "cublasLtMatmulPreferenceSetAttribute", key);
}

Layout make_layout(const MatmulKey& key, DType dtype, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    check_lt(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), rows),
             "cublasLtMatrixLayoutCreate", key);
    return Layout(layout);
}

cublasLtEpilogue_t epilogue_of(MatmulEpilogue epilogue) {
    switch (epilogue) {
        case MatmulEpilogue::bias:
            return CUBLASLT_EPILOGUE_BIAS;
        case MatmulEpilogue::gelu:
            return CUBLASLT_EPILOGUE_GELU_AUX;
        case MatmulEpilogue::gelu_bias:
            return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        case MatmulEpilogue::dgelu:
            return CUBLASLT_EPILOGUE_DGELU;
        case MatmulEpilogue::none:
            break;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

// A sum of mixed 16-bit units, position by position: equal for equal bits, in any order of blocks.
__global__ void checksum_kernel(unsigned long long* sum,
                                const unsigned short* __restrict__ data,
                                std::int64_t count) {
    unsigned long long part = 0;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i < count; i += step) {
        unsigned long long mixed =
            (static_cast<unsigned long long>(i) << 16 | data[i]) * 0x9E3779B97F4A7C15ULL;
        part += mixed ^ (mixed >> 29);
    }
    atomicAdd(sum, part);
}

// The cuBLASLt state of a context.
class Matmuls {
  public:
    Matmuls() = default;
    ~Matmuls() {
        if (handle_ != nullptr) cublasLtDestroy(handle_);
    }
    Matmuls(const Matmuls&) = delete;
    Matmuls& operator=(const Matmuls&) = delete;

    void run(Stream stream, const LibraryMatmul& call);
    void begin_tuning(const MatmulTuning& options) {
        options_ = options;
        is_tuning_ = true;
    }
    void end_tuning() { is_tuning_ = false; }
    std::string export_plans(const MatmulOrigin& origin) const;
    void import_plans(const MatmulOrigin& origin, const std::string& text);

  private:
    struct Workspace {
        void* stream;
        Buffer buffer;
    };
    void* workspace(Stream stream);
    Plan make_plan(const LibraryMatmul& call) const;
    void describe(const LibraryMatmul& call, Plan* plan) const;
    void require_possible(const LibraryMatmul& call, const Plan& plan) const;
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(const LibraryMatmul& call,
                                                            const Plan& plan,
                                                            int count) const;
    void launch(Stream stream, const LibraryMatmul& call, const Plan& plan, bool accumulate);
    void tune(Stream stream, const LibraryMatmul& call, Plan* plan);
    unsigned long long checksum_of_run(Stream stream, const LibraryMatmul& call, const Plan& plan);
    double median_us(Stream stream, const LibraryMatmul& call, const Plan& plan);

    cublasLtHandle_t handle_ = nullptr;  // made by the first run()
    std::vector<Workspace> workspaces_;  // one a stream: matmuls of two streams may overlap
    std::map<MatmulKey, Plan> plans_;
    MatmulTuning options_;
    bool is_tuning_ = false;
};

void* Matmuls::workspace(Stream stream) {
    for (const Workspace& w : workspaces_) {
        if (w.stream == stream.native()) return w.buffer.data();
    }
    workspaces_.push_back(
        {stream.native(), Buffer(stream.context(), kMatmulWorkspaceBytes, "cuBLASLt workspace")});
    return workspaces_.back().buffer.data();
}

// Description and layouts. The pointers of bias and aux are set too: the heuristic reads their
// alignment.
void Matmuls::describe(const LibraryMatmul& call, Plan* plan) const {
    const MatmulKey& key = call.key;
    cublasLtMatmulDesc_t description = nullptr;
    check_lt(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "cublasLtMatmulDescCreate", key);
    plan->description.reset(description);
    const bool is_wgrad = key.pass == MatmulPass::wgrad;
    const cublasOperation_t op_a = key.pass == MatmulPass::forward ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = is_wgrad ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(key, description, CUBLASLT_MATMUL_DESC_TRANSA, op_a);
    set(key, description, CUBLASLT_MATMUL_DESC_TRANSB, op_b);
    set(key, description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
    if (call.bias != nullptr) {
        set(key, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
        set(key, description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(key.result));
    }
    const std::int64_t m = key.pass == MatmulPass::forward ? key.OC : key.C;
    if (call.aux != nullptr) {
        set(key, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
        set(key, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, m);
    }
    plan->a = is_wgrad ? make_layout(key, key.operand, key.C, key.N)
                       : make_layout(key, key.operand, key.C, key.OC);
    plan->b = key.pass == MatmulPass::forward ? make_layout(key, key.operand, key.C, key.N)
                                              : make_layout(key, key.operand, key.OC, key.N);
    plan->d = make_layout(key, key.result, m, is_wgrad ? key.OC : key.N);
}

// A text may name an algorithm that this matmul cannot take, or bytes that are none: cuBLASLt tells
// before it runs anything.
void Matmuls::require_possible(const LibraryMatmul& call, const Plan& plan) const {
    if (plan.choice.is_general) return;
    cublasLtMatmulAlgo_t algorithm;
    std::memcpy(&algorithm, plan.choice.algorithm.data(), sizeof(algorithm));
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle_, plan.description.get(), plan.a.get(), plan.b.get(),
                                plan.d.get(), plan.d.get(), &algorithm, &result);
    const bool fits = result.workspaceSize <= static_cast<std::size_t>(kMatmulLibraryBytes);
    ENSURE(status == CUBLAS_STATUS_SUCCESS && fits, "matmul.plan_format",
           "matmul plans: cuBLASLt cannot run the algorithm of the line \"plan ", call.key.text(),
           "\" (cublasLtMatmulAlgoCheck: ", cublasLtGetStatusName(status), ", workspace ",
           result.workspaceSize, " of ", kMatmulLibraryBytes, " bytes); tune again");
}

std::vector<cublasLtMatmulHeuristicResult_t> Matmuls::candidates(const LibraryMatmul& call,
                                                                 const Plan& plan,
                                                                 int count) const {
    const MatmulKey& key = call.key;
    // cuBLASLt takes operands of one type, and results of that type or fp32. Where rows are not
    // whole 16-byte units its bf16 kernels apply epilogues to the rounded sum (seen on an H200 with
    // cuBLASLt 13.1), which kernels/matmul.h excludes, and it refuses an aux. dGELU may meet the
    // rounded sum on whole rows, too; kernels/matmul.h allows that.
    const bool has_whole_rows = key.C % 8 == 0 && key.OC % 8 == 0 && key.alignment >= 16;
    const bool is_fused = key.epilogue != MatmulEpilogue::none;
    if (key.operand == DType::f32 && key.result == DType::bf16) return {};
    if (key.operand == DType::bf16 && is_fused && !has_whole_rows) return {};
    cublasLtMatmulPreference_t handle = nullptr;
    check_lt(cublasLtMatmulPreferenceCreate(&handle), "cublasLtMatmulPreferenceCreate", key);
    const Preference preference(handle);
    set(key, handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(kMatmulLibraryBytes));
    // Split sums may meet in the workspace in a fixed order, never in the output in any order.
    set(key, handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto alignment = static_cast<std::uint32_t>(key.alignment);
    set(key, handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(key, handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(key, handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(key, handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, plan.description.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
        handle, count, results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic", key);
    results.resize(static_cast<std::size_t>(found));
    results.erase(std::remove_if(results.begin(), results.end(),
                                 [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; }),
                  results.end());
    return results;
}

Plan Matmuls::make_plan(const LibraryMatmul& call) const {
    Plan plan;
    describe(call, &plan);
    const auto offered = candidates(call, plan, 1);
    plan.choice.is_general = offered.empty();
    if (!offered.empty()) plan.choice.algorithm = words_of(offered[0].algo);
    return plan;
}

void Matmuls::launch(Stream stream, const LibraryMatmul& call, const Plan& plan, bool accumulate) {
    const float alpha = 1.0F;
    const float beta = accumulate ? 1.0F : 0.0F;
    cublasLtMatmulAlgo_t algorithm;
    std::memcpy(&algorithm, plan.choice.algorithm.data(), sizeof(algorithm));
    check_lt(cublasLtMatmul(handle_, plan.description.get(), &alpha, call.a, plan.a.get(), call.b,
                            plan.b.get(), &beta, call.d, plan.d.get(), call.d, plan.d.get(),
                            &algorithm, workspace(stream),
                            static_cast<std::size_t>(kMatmulLibraryBytes), native(stream)),
             "cublasLtMatmul", call.key);
}

unsigned long long Matmuls::checksum_of_run(Stream stream,
                                            const LibraryMatmul& call,
                                            const Plan& plan) {
    launch(stream, call, plan, false);
    auto* sum = reinterpret_cast<unsigned long long*>(static_cast<char*>(workspace(stream)) +
                                                      kMatmulLibraryBytes);
    constexpr const char* kOp = "matmul checksum";
    const TensorShape& out = call.general.out;
    CUDA_CHECK(cudaMemsetAsync(sum, 0, sizeof(*sum), native(stream)), kOp, out);
    checksum_kernel<<<1024, 256, 0, native(stream)>>>(
        sum, static_cast<const unsigned short*>(call.d), call.d_bytes / 2);
    check_launch(kOp, out);
    unsigned long long result = 0;
    CUDA_CHECK(
        cudaMemcpyAsync(&result, sum, sizeof(result), cudaMemcpyDeviceToHost, native(stream)), kOp,
        out);
    CUDA_CHECK(cudaStreamSynchronize(native(stream)), kOp, out);
    return result;
}

double Matmuls::median_us(Stream stream, const LibraryMatmul& call, const Plan& plan) {
    Event begin(stream.context());
    Event end(stream.context());
    std::vector<double> us;
    for (int i = 0; i < options_.num_repeats; ++i) {
        stream.record(begin);
        launch(stream, call, plan, call.key.accumulate);
        stream.record(end);
        end.synchronize();
        us.push_back(1e3 * Event::elapsed_ms(begin, end));
    }
    std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
    return us[us.size() / 2];
}

void Matmuls::tune(Stream stream, const LibraryMatmul& call, Plan* plan) {
    plan->choice.is_chosen = true;
    if (plan->choice.is_general) return;
    Plan trial;
    describe(call, &trial);
    bool has_best = false;
    for (const auto& candidate : candidates(call, *plan, options_.num_candidates)) {
        trial.choice.algorithm = words_of(candidate.algo);
        const auto first = checksum_of_run(stream, call, trial);
        if (checksum_of_run(stream, call, trial) != first) continue;
        const double us = median_us(stream, call, trial);
        if (has_best && us >= plan->choice.us) continue;
        plan->choice.algorithm = trial.choice.algorithm;
        plan->choice.us = us;
        has_best = true;
    }
    ENSURE(has_best, "matmul.tuning", "matmul ", call.key.text(),
           ": each algorithm that cuBLASLt offers gives other bits in a second run; report this "
           "with the GPU and cuBLASLt version ",
           cublasLtGetVersion());
}

void Matmuls::run(Stream stream, const LibraryMatmul& call) {
    if (handle_ == nullptr) check_lt(cublasLtCreate(&handle_), "cublasLtCreate", call.key);
    auto found = plans_.find(call.key);
    if (found == plans_.end()) found = plans_.emplace(call.key, make_plan(call)).first;
    Plan& plan = found->second;
    if (plan.description == nullptr) {  // imported
        Plan imported;
        imported.choice = plan.choice;
        describe(call, &imported);
        require_possible(call, imported);
        plan = std::move(imported);
    }
    if (!plan.choice.is_general) {
        if (call.bias != nullptr) {
            set(call.key, plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
        }
        if (call.aux != nullptr) {
            set(call.key, plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                call.aux);
        }
    }
    if (is_tuning_ && !plan.choice.is_chosen) tune(stream, call, &plan);
    if (plan.choice.is_general) {
        matmul_general(stream, call.general);
    } else {
        launch(stream, call, plan, call.key.accumulate);
    }
}

std::string Matmuls::export_plans(const MatmulOrigin& origin) const {
    MatmulChoices choices;
    for (const auto& [key, plan] : plans_)
        choices[key] = plan.choice;
    return format_matmul_plans(origin, choices);
}

void Matmuls::import_plans(const MatmulOrigin& origin, const std::string& text) {
    for (const auto& [key, choice] : parse_matmul_plans(origin, text)) {
        plans_[key] = Plan{};
        plans_[key].choice = choice;
    }
}

MatmulOrigin origin_of(Stream stream) {
    return {str("cublasLt ", cublasLtGetVersion()),
            cuda_device_info(stream.context().device_index()).name};
}

}  // namespace

void run_matmul(Stream stream, const LibraryMatmul& call) {
    stream.context().object<Matmuls>().run(stream, call);
}

void matmul_begin_tuning(Stream stream, const MatmulTuning& options) {
    stream.context().object<Matmuls>().begin_tuning(options);
}

void matmul_end_tuning(Stream stream) {
    stream.context().object<Matmuls>().end_tuning();
}

std::string matmul_export_plans(Stream stream) {
    return stream.context().object<Matmuls>().export_plans(origin_of(stream));
}

void matmul_import_plans(Stream stream, const std::string& text) {
    stream.context().object<Matmuls>().import_plans(origin_of(stream), text);
}

}  // namespace ingot::cuda
