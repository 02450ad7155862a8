#include "kernels/global_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/device/global_norm_grid.h"

namespace ingot {
namespace {

void check(Stream stream, const SquaredNorm& a) {
    contract::require_on_device(stream, a.inp, "squared_norm: inp");
    contract::require_float("global_norm.dtype", a.inp, "squared_norm: inp");
    contract::require_on_device(stream, a.out, "squared_norm: out");
    contract::require_shape("global_norm.shape", a.out, {1}, "squared_norm: out");
    contract::require_dtype("global_norm.dtype", a.out, DType::f32, "squared_norm: out");
    contract::require_scratch("global_norm.scratch", stream, a.scratch,
                              squared_norm_scratch_bytes(stream.device(), a.inp.numel()),
                              "squared_norm: scratch");
}

void check(Stream stream, const ClipByGlobalNorm& a) {
    contract::require_on_device(stream, a.scalars, "clip_by_global_norm: scalars");
    contract::require_shape("global_norm.shape", a.scalars, {kNumStepScalars},
                            "clip_by_global_norm: scalars");
    contract::require_dtype("global_norm.dtype", a.scalars, DType::f32,
                            "clip_by_global_norm: scalars");
    contract::require_on_device(stream, a.squares, "clip_by_global_norm: squares");
    contract::require_dtype("global_norm.dtype", a.squares, DType::f32,
                            "clip_by_global_norm: squares");
    ENSURE(a.squares.num_dims == 1 && a.squares.numel() >= 1, "global_norm.shape",
           "clip_by_global_norm: squares is ", a.squares.shape_string(),
           ", must be (n) with at least one part");
    if (!a.loss) return;
    contract::require_on_device(stream, a.loss, "clip_by_global_norm: loss");
    contract::require_shape("global_norm.shape", a.loss, {1}, "clip_by_global_norm: loss");
    contract::require_dtype("global_norm.dtype", a.loss, DType::f32, "clip_by_global_norm: loss");
}

// Sum of squares of one piece, in double: the squares of the largest floats do not overflow. The
// lanes are independent sums, so that additions need not wait for each other.
template <class T>
double sum_squares(const T* values, std::int64_t count) {
    constexpr std::int64_t kLanes = 16;
    double lanes[kLanes] = {};
    const std::int64_t whole = count / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
        for (std::int64_t lane = 0; lane < kLanes; ++lane) {
            const double value = to_float(values[i + lane]);
            lanes[lane] += value * value;
        }
    }
    double sum = 0.0;
    for (std::int64_t i = whole; i < count; ++i)
        sum += static_cast<double>(to_float(values[i])) * to_float(values[i]);
    for (const double lane : lanes)
        sum += lane;
    return sum;
}

}  // namespace

void squared_norm(Stream stream, const SquaredNorm& args) {
    check(stream, args);
    const OpRange range(stream, "squared_norm",
                        {.bytes = bytes_of_tensors(args.out, args.inp), .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::squared_norm(stream, args);
    }
    stream.run([args] { cpu::squared_norm(args); });
}

std::int64_t squared_norm_scratch_bytes(Device device, std::int64_t numel) {
    return device == Device::cuda ? cuda::squared_norm_scratch_bytes(numel) : 0;
}

void clip_by_global_norm(Stream stream, const ClipByGlobalNorm& args) {
    check(stream, args);
    const OpRange range(
        stream, "clip_by_global_norm",
        {.bytes = bytes_of_tensors(args.squares, args.loss) + 2 * args.scalars.size_bytes()});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::clip_by_global_norm(stream, args);
    }
    stream.run([args] { cpu::clip_by_global_norm(args); });
}

namespace cpu {

// A fixed number of pieces, so that the order of the sum does not depend on the threads.
void squared_norm(const SquaredNorm& a) {
    constexpr std::int64_t kPieces = 256;
    const std::int64_t numel = a.inp.numel();
    const std::int64_t piece = (numel + kPieces - 1) / kPieces;
    double sums[kPieces] = {};
    dispatch_float(a.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* inp = a.inp.ptr<T>();
#pragma omp parallel for schedule(static)
        for (std::int64_t p = 0; p < kPieces; ++p) {
            const std::int64_t begin = std::min(numel, p * piece);
            const std::int64_t end = std::min(numel, begin + piece);
            sums[p] = sum_squares(inp + begin, end - begin);
        }
    });
    float* out = a.out.ptr<float>();
    double total = a.accumulate ? *out : 0.0;
    for (const double sum : sums)
        total += sum;
    *out = static_cast<float>(total);
}

// The norm is rounded to fp32 before it is compared, so a norm that prints as max_norm is not
// clipped. A step that is not finite gets a factor of 0.
void clip_by_global_norm(const ClipByGlobalNorm& a) {
    float* scalars = a.scalars.ptr<float>();
    const float* squares = a.squares.ptr<float>();
    double total = 0.0;
    for (std::int64_t i = 0; i < a.squares.numel(); ++i)
        total += squares[i];
    const double inv_tokens = scalars[kInvTokens];
    const double max_norm = scalars[kMaxNorm];
    const float norm = static_cast<float>(std::sqrt(total) * inv_tokens);
    const bool is_finite = std::isfinite(norm) && (!a.loss || std::isfinite(*a.loss.ptr<float>()));
    const bool is_clipped = max_norm > 0.0 && norm > max_norm;
    const double factor = is_clipped ? inv_tokens * (max_norm / norm) : inv_tokens;
    scalars[kGradNorm] = norm;
    scalars[kGradFactor] = is_finite ? static_cast<float>(factor) : 0.0F;
    scalars[kIsFinite] = is_finite ? 1.0F : 0.0F;
}

}  // namespace cpu
}  // namespace ingot
