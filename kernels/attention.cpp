#include "kernels/attention.h"

#include <algorithm>
#include <string>

#include "engine/core/op_range.h"
#include "kernels/attention_flash.h"
#include "kernels/attention_general.h"
#include "kernels/attention_method.h"
#include "kernels/contract.h"

namespace ingot {
namespace {

constexpr int kMaxHeadSize = 256;

void check_heads(const AttentionShape& s, const std::string& op) {
    ENSURE(s.num_heads >= 1 && s.num_kv_heads >= 1 && s.num_heads % s.num_kv_heads == 0,
           "attention.heads", op, ": ", s.num_heads, " query heads and ", s.num_kv_heads,
           " key/value heads; the second must be at least 1 and divide the first");
    ENSURE(s.head_size >= 8 && s.head_size <= kMaxHeadSize && s.head_size % 8 == 0,
           "attention.heads", op, ": head size ", s.head_size, ", must be 8 to ", kMaxHeadSize,
           " in multiples of 8");
}

// Checks qkv and returns what its shape means.
AttentionShape check_qkv(
    Stream stream, const ConstTensor& qkv, int num_heads, int num_kv_heads, const std::string& op) {
    const std::string what = op + ": qkv";
    contract::require_on_device(stream, qkv, what.c_str());
    contract::require_float("attention.dtype", qkv, what.c_str());
    ENSURE(qkv.num_dims == 3 && qkv.dim(1) >= 1, "attention.shape", what, " is ",
           qkv.shape_string(), ", must be (B, T, (NH + 2 NKV) * HS) with T >= 1");
    AttentionShape shape{qkv.dim(0), qkv.dim(1), num_heads, num_kv_heads, 8, qkv.dtype};
    check_heads(shape, op);
    const std::int64_t slots = num_heads + 2 * std::int64_t{num_kv_heads};
    ENSURE(qkv.dim(2) % slots == 0, "attention.shape", what, " is ", qkv.shape_string(),
           "; its last dimension must be a multiple of NH + 2 NKV = ", slots);
    shape.head_size = static_cast<int>(std::min<std::int64_t>(qkv.dim(2) / slots, 1 << 30));
    check_heads(shape, op);
    return shape;
}

void check_tensor(Stream stream,
                  const ConstTensor& tensor,
                  DType dtype,
                  std::initializer_list<std::int64_t> dims,
                  const std::string& what) {
    contract::require_on_device(stream, tensor, what.c_str());
    contract::require_dtype("attention.dtype", tensor, dtype, what.c_str());
    contract::require_shape("attention.shape", tensor, dims, what.c_str());
}

// The CPU has one implementation.
void check_method(Stream stream, AttentionMethod method, const char* op) {
    const bool takes_all = method == AttentionMethod::automatic ||
                           method == AttentionMethod::general || stream.device() == Device::cuda;
    ENSURE(takes_all, "attention.method", op, ": method ", name_of(method),
           " on the CPU, which has general alone; use auto or general");
}

void check(Stream stream, const AttentionForward& a) {
    const std::string op = "attention_forward";
    check_method(stream, a.method, op.c_str());
    const AttentionShape s = check_qkv(stream, a.qkv, a.num_heads, a.num_kv_heads, op);
    check_tensor(stream, a.out, s.dtype, {s.B, s.T, std::int64_t{s.num_heads} * s.head_size},
                 op + ": out");
    check_tensor(stream, a.lse, DType::f32, {s.B, s.num_heads, s.T}, op + ": lse");
}

void check(Stream stream, const AttentionBackward& a) {
    const std::string op = "attention_backward";
    check_method(stream, a.method, op.c_str());
    const AttentionShape s = check_qkv(stream, a.qkv, a.num_heads, a.num_kv_heads, op);
    const std::int64_t C = std::int64_t{s.num_heads} * s.head_size;
    check_tensor(stream, a.dqkv, s.dtype, {s.B, s.T, a.qkv.dim(2)}, op + ": dqkv");
    check_tensor(stream, a.dout, s.dtype, {s.B, s.T, C}, op + ": dout");
    check_tensor(stream, a.out, s.dtype, {s.B, s.T, C}, op + ": out");
    check_tensor(stream, a.lse, DType::f32, {s.B, s.num_heads, s.T}, op + ": lse");
    contract::require_scratch("attention.scratch", stream, a.scratch,
                              attention_backward_scratch_bytes(stream.device(), s, a.method),
                              "attention_backward: scratch");
}

// Multiply-adds of one product over the causal half of (T, T), times 2.
double causal_product(const ConstTensor& out) {
    return static_cast<double>(out.numel()) * static_cast<double>(out.dim(1));
}

}  // namespace

void attention_forward(Stream stream, const AttentionForward& args) {
    check(stream, args);
    const OpRange range(stream, "attention_forward",
                        {.bytes = bytes_of_tensors(args.out, args.lse, args.qkv),
                         .flops = 2.0 * causal_product(args.out),
                         .dtype = args.qkv.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::attention_forward(stream, args);
    }
    stream.run([args] { cpu::attention_forward(args); });
}

void attention_backward(Stream stream, const AttentionBackward& args) {
    check(stream, args);
    const OpRange range(
        stream, "attention_backward",
        {.bytes = bytes_of_tensors(args.dqkv, args.dout, args.out, args.lse, args.qkv),
         .flops = 5.0 * causal_product(args.out),
         .dtype = args.qkv.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::attention_backward(stream, args);
    }
    stream.run([args] { cpu::attention_backward(args); });
}

std::int64_t attention_backward_scratch_bytes(Device device,
                                              const AttentionShape& s,
                                              AttentionMethod method) {
    if (device == Device::cuda) return cuda::attention_backward_scratch_bytes(s, method);
    if (s.dtype == DType::f32) return 0;
    return s.B * s.num_kv_heads * s.T * s.head_size * 2 * static_cast<std::int64_t>(sizeof(float));
}

namespace cuda {

std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape, AttentionMethod method) {
    if (method == AttentionMethod::cudnn) return 0;  // its workspace belongs to the context
    const std::int64_t general = general_attention_backward_scratch_bytes(shape);
    if (method == AttentionMethod::general || !flash_attention_supports(shape)) return general;
    const std::int64_t flash = flash_attention_backward_scratch_bytes(shape);
    return method == AttentionMethod::own ? flash : std::max(general, flash);
}

}  // namespace cuda
}  // namespace ingot
