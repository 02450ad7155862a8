#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/cpu_math.h"

namespace ingot {
namespace {

void check(Stream stream, const CrossEntropy& a) {
    contract::require_on_device(stream, a.logits, "cross_entropy: logits");
    contract::require_on_device(stream, a.losses, "cross_entropy: losses");
    contract::require_on_device(stream, a.targets, "cross_entropy: targets");
    contract::require_float("cross_entropy.dtype", a.logits, "cross_entropy: logits");
    contract::require_dtype("cross_entropy.dtype", a.losses, DType::f32, "cross_entropy: losses");
    contract::require_dtype("cross_entropy.dtype", a.targets, DType::i32, "cross_entropy: targets");
    ENSURE(a.logits.num_dims == 2, "cross_entropy.shape", "cross_entropy: logits is ",
           a.logits.shape_string(), ", must be (N, Vp)");
    contract::require_row("cross_entropy.shape", a.logits, "cross_entropy: logits");
    const std::int64_t Vp = a.logits.dim(1);
    ENSURE(a.vocab_size >= 1 && a.vocab_size <= Vp, "cross_entropy.shape",
           "cross_entropy: vocab_size = ", a.vocab_size, ", must be 1 to the ", Vp,
           " columns of logits");
    const std::int64_t N = a.logits.dim(0);
    contract::require_shape("cross_entropy.shape", a.losses, {N}, "cross_entropy: losses");
    contract::require_shape("cross_entropy.shape", a.targets, {N}, "cross_entropy: targets");
}

template <class T>
float largest(const T* x, std::int64_t V) {
    float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
    for (std::int64_t v = 0; v < V; ++v) {
        const float value = to_float(x[v]);
        max = value > max ? value : max;
    }
    return max;
}

// sum of exp(x_v - max): short fp32 sums, which vectorize, added in double.
template <class T>
double sum_of_exp(const T* x, std::int64_t V, float max) {
    constexpr std::int64_t kShort = 512;
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < V; begin += kShort) {
        const std::int64_t end = std::min(begin + kShort, V);
        float part = 0.0F;
#pragma omp simd reduction(+ : part)
        for (std::int64_t v = begin; v < end; ++v)
            part += cpu_math::exp(to_float(x[v]) - max);
        sum += part;
    }
    return sum;
}

// One row: returns its loss, and turns its logits into their gradient when asked to. A row whose
// logits hold NaN or +inf gives NaN.
template <class T>
float row_loss(
    T* logits, std::int64_t V, std::int64_t Vp, std::int32_t target, bool write_dlogits) {
    if (target == kMaskedTarget) {
        if (write_dlogits) std::fill_n(logits, Vp, from_float<T>(0.0F));
        return 0.0F;
    }
    const float max = largest(logits, V);
    const double sum = sum_of_exp(logits, V, max);
    const double target_logit = to_float(logits[target]);
    const double loss = std::log(sum) - (target_logit - max);
    if (!write_dlogits) return static_cast<float>(loss);
    const float scale = static_cast<float>(1.0 / sum);
    const float target_probability = cpu_math::exp(static_cast<float>(target_logit - max)) * scale;
    for (std::int64_t v = 0; v < V; ++v)
        logits[v] = from_float<T>(cpu_math::exp(to_float(logits[v]) - max) * scale);
    logits[target] = from_float<T>(target_probability - 1.0F);
    std::fill(logits + V, logits + Vp, from_float<T>(0.0F));
    return static_cast<float>(loss);
}

}  // namespace

void cross_entropy(Stream stream, const CrossEntropy& args) {
    check(stream, args);
    const OpRange range(stream, "cross_entropy",
                        {.bytes = bytes_of_tensors(args.losses, args.targets) +
                                  (args.write_dlogits ? 2 : 1) * args.logits.size_bytes(),
                         .dtype = args.logits.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::cross_entropy(stream, args);
    }
    stream.run([args] { cpu::cross_entropy(args); });
}

namespace cpu {

void cross_entropy(const CrossEntropy& a) {
    dispatch_float(a.logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t N = a.logits.dim(0);
        const std::int64_t Vp = a.logits.dim(1);
        const std::int32_t* targets = a.targets.ptr<std::int32_t>();
        float* losses = a.losses.ptr<float>();
#pragma omp parallel for schedule(static)
        for (std::int64_t n = 0; n < N; ++n) {
            losses[n] =
                row_loss(a.logits.ptr<T>() + n * Vp, a.vocab_size, Vp, targets[n], a.write_dlogits);
        }
    });
}

}  // namespace cpu
}  // namespace ingot
