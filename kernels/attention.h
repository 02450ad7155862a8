// Causal self-attention with grouped-query heads, without a T x T matrix in memory (Dao, "Flash-
// Attention-2", arXiv 2307.08691); both backends keep one block of scores.
//
//   head h of NH reads key/value head h / (NH / NKV)
//   s[i, j] = scale * q_i . k_j for j <= i        lse_i = log sum_{j <= i} exp s[i, j]
//   p[i, j] = exp(s[i, j] - lse_i)                out_i = sum_j p[i, j] v_j
//   backward  D_i = dout_i . out_i                dp[i, j] = dout_i . v_j
//             ds[i, j] = p[i, j] (dp[i, j] - D_i)
//             dq_i = scale * sum_j ds[i, j] k_j   dk_j = scale * sum_i ds[i, j] q_i
//             dv_j = sum_i p[i, j] dout_i         (dk, dv summed over the heads of a group)
//
// One row of qkv holds all query heads, then all key heads, then all value heads:
// (NH + 2 NKV) * HS values. Sequences of a batch do not see each other. Any T >= 1; HS from 8 to
// 256 in multiples of 8. One dtype, f32 or bf16; scores, lse and sums are fp32. Deterministic,
// unless `deterministic` is false and the method is cudnn.
//
// A method is chosen once for a run (kernels/attention_method.h) and travels in the arguments:
//   automatic   own where it applies to the call, else general
//   own         flash attention on tensor cores: CUDA, bf16, HS 64 or 128, scale > 0, tensors that
//               start at multiples of 16 bytes
//   general     the path that takes every shape; on the CPU the only one
//   cudnn       cuDNN's fused attention: CUDA, bf16; needs prepare_attention() first
// Errors: attention.shape, attention.heads, attention.dtype, attention.scratch, attention.method,
// op.device, op.missing; those of kernels/attention_cudnn.h.
#pragma once

#include "engine/core/device.h"

namespace ingot {

enum class AttentionMethod { automatic, own, general, cudnn };

struct AttentionForward {
    Tensor out;        // (B, T, NH * HS)
    Tensor lse;        // (B, NH, T) f32, natural log
    ConstTensor qkv;   // (B, T, (NH + 2 NKV) * HS)
    int num_heads;     // NH
    int num_kv_heads;  // NKV, divides NH
    float scale;       // 1 / sqrt(HS) in GPT-2
    AttentionMethod method = AttentionMethod::automatic;
};
void attention_forward(Stream stream, const AttentionForward& args);

struct AttentionBackward {
    Tensor dqkv;       // like qkv, overwritten
    Tensor scratch;    // (attention_backward_scratch_bytes) u8
    ConstTensor dout;  // (B, T, NH * HS)
    ConstTensor out;   // (B, T, NH * HS)
    ConstTensor lse;   // (B, NH, T) f32
    ConstTensor qkv;   // (B, T, (NH + 2 NKV) * HS)
    int num_heads;
    int num_kv_heads;
    float scale;
    AttentionMethod method = AttentionMethod::automatic;
    bool deterministic = true;  // false: cuDNN may add in any order
};
void attention_backward(Stream stream, const AttentionBackward& args);

struct AttentionShape {
    std::int64_t B, T;
    int num_heads, num_kv_heads, head_size;
    DType dtype;
};
std::int64_t attention_backward_scratch_bytes(Device device,
                                              const AttentionShape& shape,
                                              AttentionMethod method = AttentionMethod::automatic);

namespace cpu {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
}  // namespace cpu

namespace cuda {
void attention_forward(Stream stream, const AttentionForward& args);
void attention_backward(Stream stream, const AttentionBackward& args);
std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape, AttentionMethod method);
}  // namespace cuda

}  // namespace ingot
