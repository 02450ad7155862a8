#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/core/op_range.h"
#include "kernels/contract.h"

namespace ingot {
namespace {

void check_values(const AdamW& a) {
    const auto check_beta = [](float beta, const char* name) {
        ENSURE(beta >= 0.0F && beta < 1.0F, "adamw.value", "adamw: ", name, " = ", beta,
               ", must be in [0, 1)");
    };
    check_beta(a.beta1, "beta1");
    check_beta(a.beta2, "beta2");
    ENSURE(std::isfinite(a.eps) && a.eps > 0.0F, "adamw.value", "adamw: eps = ", a.eps,
           ", must be above 0; 1e-8 is usual");
    ENSURE(std::isfinite(a.weight_decay) && a.weight_decay >= 0.0F, "adamw.value",
           "adamw: weight_decay = ", a.weight_decay, ", must be 0 or above");
}

void check(Stream stream, const AdamW& a) {
    const auto check_like_master = [&](const ConstTensor& tensor, const std::string& what) {
        contract::require_on_device(stream, tensor, what.c_str());
        ENSURE(tensor.num_dims == 1 && tensor.numel() == a.master.numel(), "adamw.shape", what,
               " is ", tensor.shape_string(), ", must have the ", a.master.numel(),
               " elements of master in one dimension");
    };
    check_like_master(a.master, "adamw: master");
    check_like_master(a.m, "adamw: m");
    check_like_master(a.v, "adamw: v");
    check_like_master(a.grad, "adamw: grad");
    contract::require_dtype("adamw.dtype", a.master, DType::f32, "adamw: master");
    contract::require_dtype("adamw.dtype", a.m, DType::f32, "adamw: m");
    contract::require_dtype("adamw.dtype", a.v, DType::f32, "adamw: v");
    contract::require_float("adamw.dtype", a.grad, "adamw: grad");
    if (a.param) {
        check_like_master(a.param, "adamw: param");
        contract::require_float("adamw.dtype", a.param, "adamw: param");
    }
    contract::require_on_device(stream, a.scalars, "adamw: scalars");
    contract::require_shape("adamw.shape", a.scalars, {kNumStepScalars}, "adamw: scalars");
    contract::require_dtype("adamw.dtype", a.scalars, DType::f32, "adamw: scalars");
    check_values(a);
}

// What one element's update needs besides the element.
struct StepConstants {
    float lr, grad_factor;
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float inv_correction1, inv_correction2;
    float eps, weight_decay;
};

StepConstants read_constants(const AdamW& a) {
    const float* scalars = a.scalars.ptr<float>();
    return {scalars[kLearningRate],
            scalars[kGradFactor],
            a.beta1,
            1.0F - a.beta1,
            a.beta2,
            1.0F - a.beta2,
            1.0F / scalars[kBiasCorrection1],
            1.0F / scalars[kBiasCorrection2],
            a.eps,
            a.weight_decay};
}

// One contiguous piece. Without a `param` (null) the master is the parameter.
template <class P, class G>
void update(float* __restrict__ master,
            float* __restrict__ m,
            float* __restrict__ v,
            P* __restrict__ param,
            const G* __restrict__ grad,
            std::int64_t count,
            const StepConstants& c) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = to_float(grad[i]) * c.grad_factor;
        const float new_m = c.beta1 * m[i] + c.one_minus_beta1 * g;
        const float new_v = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
        const float step =
            (new_m * c.inv_correction1) / (std::sqrt(new_v * c.inv_correction2) + c.eps);
        m[i] = new_m;
        v[i] = new_v;
        master[i] -= c.lr * (step + c.weight_decay * master[i]);
    }
    if (param == nullptr) return;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
        param[i] = from_float<P>(master[i]);
}

template <class P, class G>
void update_all(const AdamW& a) {
    constexpr std::int64_t kPiece = 4096;  // the master written first is still in cache for `param`
    const StepConstants constants = read_constants(a);
    const std::int64_t n = a.master.numel();
    float* master = a.master.ptr<float>();
    float* m = a.m.ptr<float>();
    float* v = a.v.ptr<float>();
    P* param = a.param ? a.param.ptr<P>() : nullptr;
    const G* grad = a.grad.ptr<G>();
#pragma omp parallel for schedule(static)
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
        update(master + begin, m + begin, v + begin, param == nullptr ? param : param + begin,
               grad + begin, std::min(kPiece, n - begin), constants);
    }
}

}  // namespace

void adamw(Stream stream, const AdamW& args) {
    check(stream, args);
    const OpRange range(stream, "adamw",
                        {.bytes = 2 * bytes_of_tensors(args.master, args.m, args.v) +
                                  bytes_of_tensors(args.param, args.grad),
                         .dtype = args.grad.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::adamw(stream, args);
    }
    stream.run([args] { cpu::adamw(args); });
}

namespace cpu {

void adamw(const AdamW& a) {
    if (a.scalars.ptr<float>()[kIsFinite] == 0.0F) return;
    dispatch_float(a.param ? a.param.dtype : DType::f32, [&](auto parameter) {
        dispatch_float(a.grad.dtype, [&](auto gradient) {
            update_all<decltype(parameter), decltype(gradient)>(a);
        });
    });
}

}  // namespace cpu
}  // namespace ingot
