// The one file that includes cuDNN. It talks to the library through cuDNN's C++ frontend, which is
// told (NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING) to find every function in a library opened here.
#include "kernels/attention_cudnn.h"

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include <cudnn_frontend.h>

#include "kernels/attention_method.h"

namespace cudnn_frontend {
// The frontend reads the opened library from this name; written once, while it is opened.
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace ingot::cuda {
namespace {

namespace fe = cudnn_frontend;

// -------------------------------------------------------------------------------------- library

struct Library {
    std::string problem;  // "" = loaded
    std::string name;     // "cuDNN 9.14.0"
};

Library open_library() {
    constexpr const char* kName = "libcudnn.so.9";
    constexpr int kKeepUsersChoice = 0;
    // Without it the frontend prefers the runtime of CUDA 12 where both are installed.
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", INGOT_CUDART_NAME, kKeepUsersChoice);
    Library library;
    fe::cudnn_dlhandle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (fe::cudnn_dlhandle == nullptr) {
        const char* problem = dlerror();
        library.problem = problem != nullptr ? problem : kName;
        return library;
    }
    const std::size_t version = fe::detail::get_backend_version();  // 91400
    library.name = str("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
    return library;
}

const Library& library() {
    static const Library opened = open_library();
    return opened;
}

// --------------------------------------------------------------------------------------- errors

struct Key {
    AttentionShape shape;
    float scale;
    bool is_backward;
    bool deterministic;  // of backward; true forward

    auto tied() const {
        return std::make_tuple(shape.B, shape.T, shape.num_heads, shape.num_kv_heads,
                               shape.head_size, scale, is_backward, deterministic);
    }
    bool operator<(const Key& other) const { return tied() < other.tied(); }
    const char* op() const { return is_backward ? "attention_backward" : "attention_forward"; }
    std::string text() const {
        return str("B = ", shape.B, ", T = ", shape.T, ", ", shape.num_heads, " query and ",
                   shape.num_kv_heads, " key/value heads of ", shape.head_size, ", bf16",
                   !is_backward    ? ""
                   : deterministic ? ", deterministic"
                                   : ", any order");
    }
};

// The frontend's messages list every engine that it tried; the first lines say why.
std::string shortened(std::string text) {
    constexpr std::size_t kLongest = 400;
    for (char& c : text)
        c = c == '\n' ? ' ' : c;
    return text.size() <= kLongest ? text : text.substr(0, kLongest) + " ...";
}

[[noreturn]] void fail_call(const Key& key, const char* call, const std::string& reason) {
    fail("attention.cudnn", key.op(), ": ", library().name, ", ", call, " for ", key.text(), ": ",
         shortened(reason), "; ",
         key.is_backward && key.deterministic
             ? "set train.deterministic=false or model.attention=own (general where the head size "
               "is neither 64 nor 128)"
             : "set model.attention=auto, or install a newer cuDNN 9");
}

// Runs a call of the frontend, which reports by value or throws.
template <class Call>
void checked(const Key& key, const char* name, Call&& call) {
    fe::error_t status;
    try {
        status = call();
    } catch (const std::exception& error) {
        fail_call(key, name, error.what());
    }
    if (status.is_bad()) fail_call(key, name, status.get_message());
}

void checked_status(const Key& key, const char* name, cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    fail_call(key, name, fe::detail::get_error_string(status));
}

// ---------------------------------------------------------------------------------------- graphs

using Graph = fe::graph::Graph;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// How (B, heads, T, HS) lies in rows of `row` values.
struct Layout {
    std::vector<std::int64_t> dims, strides;
};
Layout heads_in_rows(const AttentionShape& s, std::int64_t heads, std::int64_t row) {
    return {{s.B, heads, s.T, s.head_size}, {s.T * row, s.head_size, row, 1}};
}
Layout lse_layout(const AttentionShape& s) {
    return {{s.B, s.num_heads, s.T, 1}, {s.num_heads * s.T, s.T, 1, 1}};
}
std::int64_t qkv_row(const AttentionShape& s) {
    return (s.num_heads + 2 * std::int64_t{s.num_kv_heads}) * s.head_size;
}
std::int64_t out_row(const AttentionShape& s) {
    return std::int64_t{s.num_heads} * s.head_size;
}

TensorPointer input(Graph& graph, Uid uid, const Layout& layout, fe::DataType_t dtype) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name("tensor" + std::to_string(uid))
                            .set_uid(uid)
                            .set_dim(layout.dims)
                            .set_stride(layout.strides)
                            .set_data_type(dtype));
}

void output(const TensorPointer& tensor, Uid uid, const Layout& layout, fe::DataType_t dtype) {
    tensor->set_output(true)
        .set_uid(uid)
        .set_dim(layout.dims)
        .set_stride(layout.strides)
        .set_data_type(dtype);
}

constexpr fe::DataType_t kBf16 = fe::DataType_t::BFLOAT16;
constexpr fe::DataType_t kF32 = fe::DataType_t::FLOAT;

void describe_forward(Graph& graph, const Key& key) {
    const AttentionShape& s = key.shape;
    const Layout query = heads_in_rows(s, s.num_heads, qkv_row(s));
    const Layout key_value = heads_in_rows(s, s.num_kv_heads, qkv_row(s));
    auto options = fe::graph::SDPA_attributes();
    options.set_name("attention_forward")
        .set_generate_stats(true)
        .set_attn_scale(key.scale)
        .set_causal_mask(true);
    const auto [out, lse] =
        graph.sdpa(input(graph, kQ, query, kBf16), input(graph, kK, key_value, kBf16),
                   input(graph, kV, key_value, kBf16), options);
    output(out, kOut, heads_in_rows(s, s.num_heads, out_row(s)), kBf16);
    output(lse, kLse, lse_layout(s), kF32);
}

void describe_backward(Graph& graph, const Key& key) {
    const AttentionShape& s = key.shape;
    const Layout query = heads_in_rows(s, s.num_heads, qkv_row(s));
    const Layout key_value = heads_in_rows(s, s.num_kv_heads, qkv_row(s));
    const Layout out = heads_in_rows(s, s.num_heads, out_row(s));
    auto options = fe::graph::SDPA_backward_attributes();
    options.set_name("attention_backward")
        .set_attn_scale(key.scale)
        .set_causal_mask(true)
        .set_deterministic_algorithm(key.deterministic);
    const auto [dq, dk, dv] = graph.sdpa_backward(
        input(graph, kQ, query, kBf16), input(graph, kK, key_value, kBf16),
        input(graph, kV, key_value, kBf16), input(graph, kOut, out, kBf16),
        input(graph, kDout, out, kBf16), input(graph, kLse, lse_layout(s), kF32), options);
    output(dq, kDq, query, kBf16);
    output(dk, kDk, key_value, kBf16);
    output(dv, kDv, key_value, kBf16);
}

struct Plan {
    std::unique_ptr<Graph> graph;
    std::int64_t workspace_bytes = 0;
};

Plan build_plan(cudnnHandle_t handle, const Key& key) {
    Plan plan;
    plan.graph = std::make_unique<Graph>();
    Graph& graph = *plan.graph;
    graph.set_io_data_type(kBf16).set_intermediate_data_type(kF32).set_compute_data_type(kF32);
    checked(key, "validate", [&] {
        key.is_backward ? describe_backward(graph, key) : describe_forward(graph, key);
        return graph.validate();
    });
    checked(key, "build_operation_graph", [&] { return graph.build_operation_graph(handle); });
    checked(key, "create_execution_plans",
            [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); });
    if (key.deterministic) graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    checked(key, "check_support", [&] { return graph.check_support(); });
    checked(key, "build_plans",
            [&] { return graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); });
    checked(key, "get_workspace_size",
            [&] { return graph.get_workspace_size(plan.workspace_bytes); });
    return plan;
}

// ------------------------------------------------------------------------------- of one context

class CudnnAttention {
  public:
    CudnnAttention() = default;
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;
    ~CudnnAttention() {
        plans_.clear();
        if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
    }

    void prepare(Context& context, const Key& key) {
        if (plans_.count(key) != 0) return;
        if (handle_ == nullptr) {
            checked_status(key, "cudnnCreate", fe::detail::create_handle(&handle_));
        }
        Plan plan = build_plan(handle_, key);
        if (plan.workspace_bytes > workspace_.size_bytes()) {
            context.synchronize();  // the old one may be in use
            workspace_ = Buffer();
            workspace_ = Buffer(context, plan.workspace_bytes, "cuDNN workspace");
        }
        plans_.emplace(key, std::move(plan));
    }

    std::int64_t workspace_bytes() const { return workspace_.size_bytes(); }

    void run(Stream stream, const Key& key, std::unordered_map<std::int64_t, void*>& tensors) {
        const auto found = plans_.find(key);
        ENSURE(found != plans_.end(), "attention.not_prepared", key.op(),
               ": cuDNN has no plan for ", key.text(),
               "; call prepare_attention() for this shape before the first step");
        if (stream_ != stream.native()) {
            stream_ = stream.native();
            checked_status(key, "cudnnSetStream",
                           fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream_)));
        }
        checked(key, "execute",
                [&] { return found->second.graph->execute(handle_, tensors, workspace_.data()); });
    }

  private:
    cudnnHandle_t handle_ = nullptr;
    void* stream_ = nullptr;  // what the handle is set to
    std::map<Key, Plan> plans_;
    Buffer workspace_;  // for one call at a time: the calls are in one stream
};

template <class Args>
Key key_of(const Args& a, bool is_backward, bool deterministic) {
    const std::int64_t slots = a.num_heads + 2 * std::int64_t{a.num_kv_heads};
    return {{a.qkv.dim(0), a.qkv.dim(1), a.num_heads, a.num_kv_heads,
             static_cast<int>(a.qkv.dim(2) / slots), a.qkv.dtype},
            a.scale,
            is_backward,
            deterministic};
}

template <class... Views>
void check_call(const Key& key, const Views&... views) {
    constexpr std::uintptr_t kAlignment = 16;
    ENSURE(key.shape.dtype == DType::bf16, "attention.dtype", key.op(),
           ": cuDNN's attention takes bf16, not ", name_of(key.shape.dtype),
           "; use model.attention=auto");
    ENSURE(((reinterpret_cast<std::uintptr_t>(views.data) % kAlignment == 0) && ...),
           "attention.alignment", key.op(), ": a tensor does not start at a multiple of ",
           kAlignment, " bytes; allocate it from an arena");
}

// The query, key or value heads of a packed row of every token.
void* part(const ConstTensor& packed, std::int64_t first_head, const AttentionShape& s) {
    const char* begin = static_cast<const char*>(packed.data);
    return const_cast<char*>(begin + first_head * s.head_size * size_of(s.dtype));
}

void* whole(const ConstTensor& tensor) {
    return const_cast<void*>(tensor.data);
}

}  // namespace

std::string load_cudnn() {
    ENSURE(library().problem.empty(), "attention.cudnn_library",
           "model.attention = cudnn: the library cannot be loaded: ", library().problem,
           "; install cuDNN 9 for this CUDA version (libcudnn9, or add its folder to "
           "LD_LIBRARY_PATH), or use model.attention=auto");
    return library().name;
}

void prepare_cudnn_attention(Context& context, const AttentionPreparation& p) {
    load_cudnn();
    CudnnAttention& cudnn = context.object<CudnnAttention>();
    cudnn.prepare(context, {p.shape, p.scale, false, true});
    if (p.with_backward) cudnn.prepare(context, {p.shape, p.scale, true, p.deterministic});
}

std::int64_t cudnn_attention_workspace_bytes(Context& context) {
    return context.object<CudnnAttention>().workspace_bytes();
}

void cudnn_attention_forward(Stream stream, const AttentionForward& a) {
    const Key key = key_of(a, false, true);
    check_call(key, a.qkv, a.out, a.lse);
    const AttentionShape& s = key.shape;
    std::unordered_map<std::int64_t, void*> tensors = {
        {kQ, part(a.qkv, 0, s)},
        {kK, part(a.qkv, s.num_heads, s)},
        {kV, part(a.qkv, s.num_heads + s.num_kv_heads, s)},
        {kOut, whole(a.out)},
        {kLse, whole(a.lse)}};
    stream.context().object<CudnnAttention>().run(stream, key, tensors);
}

void cudnn_attention_backward(Stream stream, const AttentionBackward& a) {
    const Key key = key_of(a, true, a.deterministic);
    check_call(key, a.qkv, a.dqkv, a.out, a.dout, a.lse);
    const AttentionShape& s = key.shape;
    std::unordered_map<std::int64_t, void*> tensors = {
        {kQ, part(a.qkv, 0, s)},
        {kK, part(a.qkv, s.num_heads, s)},
        {kV, part(a.qkv, s.num_heads + s.num_kv_heads, s)},
        {kOut, whole(a.out)},
        {kDout, whole(a.dout)},
        {kLse, whole(a.lse)},
        {kDq, part(a.dqkv, 0, s)},
        {kDk, part(a.dqkv, s.num_heads, s)},
        {kDv, part(a.dqkv, s.num_heads + s.num_kv_heads, s)}};
    stream.context().object<CudnnAttention>().run(stream, key, tensors);
}

}  // namespace ingot::cuda
