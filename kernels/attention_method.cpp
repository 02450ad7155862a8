#include "kernels/attention_method.h"

#include "kernels/attention_cudnn.h"
#include "kernels/attention_flash.h"

namespace ingot {
namespace {

constexpr AttentionMethod kMethods[] = {AttentionMethod::automatic, AttentionMethod::own,
                                        AttentionMethod::general, AttentionMethod::cudnn};

std::string describe(Device device, const AttentionShape& shape) {
    return str(name_of(device), " in ", name_of(shape.dtype), " with head size ", shape.head_size);
}

[[noreturn]] void refuse(AttentionMethod wanted,
                         const char* limit,
                         Device device,
                         const AttentionShape& shape) {
    fail("attention.method", "model.attention = ", name_of(wanted), ": ", limit,
         ", but this run is on ", describe(device, shape), "; use model.attention=auto");
}

}  // namespace

const char* name_of(AttentionMethod method) {
    switch (method) {
        case AttentionMethod::automatic:
            return "auto";
        case AttentionMethod::own:
            return "own";
        case AttentionMethod::general:
            return "general";
        case AttentionMethod::cudnn:
            return "cudnn";
    }
    return "invalid";
}

AttentionMethod attention_method_from_name(const std::string& name) {
    for (const AttentionMethod method : kMethods) {
        if (name == name_of(method)) return method;
    }
    fail("attention.method", "model.attention = ", name, "; use auto, own, general or cudnn");
}

AttentionChoice choose_attention(AttentionMethod wanted,
                                 Device device,
                                 const AttentionShape& shape) {
    const bool is_cuda = device == Device::cuda;
    const bool is_own = is_cuda && cuda::flash_attention_supports(shape);
    switch (wanted) {
        case AttentionMethod::automatic:
            if (is_own) return {AttentionMethod::own, "flash attention on tensor cores"};
            if (!is_cuda) return {AttentionMethod::general, "the CPU has no other"};
            return {AttentionMethod::general,
                    str("flash attention takes bf16 and head sizes 64 and 128, not ",
                        name_of(shape.dtype), " and ", shape.head_size)};
        case AttentionMethod::own:
            if (!is_own) {
                refuse(wanted, "flash attention needs CUDA, bf16 and head size 64 or 128", device,
                       shape);
            }
            return {AttentionMethod::own, "flash attention on tensor cores"};
        case AttentionMethod::cudnn:
            if (!is_cuda || shape.dtype != DType::bf16) {
                refuse(wanted, "cuDNN's attention needs CUDA and bf16", device, shape);
            }
            return {AttentionMethod::cudnn, "cuDNN's fused attention"};
        case AttentionMethod::general:
            break;
    }
    return {AttentionMethod::general, "as configured"};
}

std::string require_attention_library(AttentionMethod method) {
    if (method != AttentionMethod::cudnn) return "";
    if constexpr (kHasCudnn) {
        return cuda::load_cudnn();
    } else {
        fail("attention.cudnn_build", "model.attention = cudnn, but this build holds no cuDNN; ",
             kHasCuda ? "run `tools/setup.sh venv cudnn`, put cuDNN 9's headers (cudnn.h) into the "
                        "CUDA toolkit or /usr/include, and run `make build`"
                      : "build it where nvcc, cudnn.h and `tools/setup.sh venv cudnn` are",
             "; or use model.attention=auto");
    }
}

void prepare_attention(Context& context, const AttentionPreparation& preparation) {
    choose_attention(preparation.method, context.device(), preparation.shape);
    if (preparation.method != AttentionMethod::cudnn) return;
    require_attention_library(preparation.method);
    if constexpr (kHasCudnn) cuda::prepare_cudnn_attention(context, preparation);
}

std::int64_t attention_workspace_bytes(Context& context) {
    if constexpr (kHasCudnn) {
        if (context.device() == Device::cuda) return cuda::cudnn_attention_workspace_bytes(context);
    }
    return 0;
}

std::int64_t estimate_attention_workspace_bytes(const AttentionPreparation& p) {
    if (p.method != AttentionMethod::cudnn) return 0;
    constexpr std::int64_t kForwardBytes = 256;
    if (!p.with_backward) return kForwardBytes;
    const AttentionShape& s = p.shape;
    const auto round_up = [](std::int64_t value, std::int64_t to) {
        return (value + to - 1) / to * to;
    };
    const std::int64_t heads = s.B * s.num_heads;
    const std::int64_t rows = heads * s.T;
    const std::int64_t sums = rows * 4;  // of dout . out
    // dk and dv of each query head in bf16, before the heads of a group are added up.
    const std::int64_t full_heads = s.num_heads == s.num_kv_heads ? 0 : 2 * rows * s.head_size * 2;
    const std::int64_t dq = p.deterministic ? heads * round_up(s.T, 64) * round_up(s.T, 128) * 2
                                            : 2 * rows * s.head_size * 4;
    return dq + sums + full_heads + kForwardBytes;
}

}  // namespace ingot
