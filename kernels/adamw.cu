// Elementwise over flat ranges, four elements a thread. Bytes per element: master, m and v read and
// written (24), grad read (4 or 2), param written (0, 4 or 2).
#include "kernels/adamw.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/packed.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

template <class P, class G>
struct AdamWArrays {
    float* master;
    float* m;
    float* v;
    P* param;  // may be null
    const G* grad;
    const float* scalars;
    std::int64_t numel;
    float beta1;
    float beta2;
    float eps;
    float weight_decay;
};

struct StepFactors {
    float lr, inv_bias_correction1, inv_bias_correction2, grad_factor;
};

template <class P, class G>
__device__ __forceinline__ void update(const AdamWArrays<P, G>& a,
                                       const StepFactors& s,
                                       float grad,
                                       float* master,
                                       float* m,
                                       float* v) {
    const float g = grad * s.grad_factor;
    *m = a.beta1 * *m + (1.0F - a.beta1) * g;
    *v = a.beta2 * *v + (1.0F - a.beta2) * g * g;
    const float denominator = sqrtf(*v * s.inv_bias_correction2) + a.eps;
    const float direction = *m * s.inv_bias_correction1 / denominator;
    *master -= s.lr * (direction + a.weight_decay * *master);
}

template <class P, class G>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const AdamWArrays<P, G> a, bool is_aligned) {
    if (a.scalars[kIsFinite] == 0.0F) return;
    const StepFactors s = {a.scalars[kLearningRate], 1.0F / a.scalars[kBiasCorrection1],
                           1.0F / a.scalars[kBiasCorrection2], a.scalars[kGradFactor]};
    const std::int64_t begin =
        (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
    if (is_aligned && begin + kWidth <= a.numel) {
        using F = Pack<float, kWidth>;
        const F master_pack = F::load<Use::streaming>(a.master + begin);
        const F m_pack = F::load<Use::streaming>(a.m + begin);
        const F v_pack = F::load<Use::streaming>(a.v + begin);
        const auto grad = Pack<G, kWidth>::template load<Use::streaming>(a.grad + begin);
        float master[kWidth], m[kWidth], v[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            master[i] = master_pack.get(i);
            m[i] = m_pack.get(i);
            v[i] = v_pack.get(i);
            update(a, s, grad.get(i), &master[i], &m[i], &v[i]);
        }
        F::from(master).store<Use::streaming>(a.master + begin);
        F::from(m).store<Use::streaming>(a.m + begin);
        F::from(v).store<Use::streaming>(a.v + begin);
        if (a.param != nullptr) Pack<P, kWidth>::from(master).store(a.param + begin);
        return;
    }
    for (std::int64_t i = begin; i < min(begin + kWidth, a.numel); ++i) {
        update(a, s, widen(a.grad[i]), &a.master[i], &a.m[i], &a.v[i]);
        if (a.param != nullptr) a.param[i] = narrow<P>(a.master[i]);
    }
}

template <class P, class G>
void launch(Stream stream, const AdamW& args) {
    const AdamWArrays<P, G> a = {args.master.ptr<float>(),
                                 args.m.ptr<float>(),
                                 args.v.ptr<float>(),
                                 args.param ? args.param.ptr<P>() : nullptr,
                                 args.grad.ptr<G>(),
                                 args.scalars.ptr<float>(),
                                 args.master.numel(),
                                 args.beta1,
                                 args.beta2,
                                 args.eps,
                                 args.weight_decay};
    const bool is_aligned = are_aligned(args.master, args.m, args.v, args.param, args.grad);
    const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(a.numel, kThreads * kWidth));
    adamw_kernel<P, G><<<blocks, kThreads, 0, native(stream)>>>(a, is_aligned);
}

}  // namespace

void adamw(Stream stream, const AdamW& args) {
    if (args.master.numel() == 0) return;
    const DType param_dtype = args.param ? args.param.dtype : DType::f32;
    dispatch_float(param_dtype, [&](auto param) {
        dispatch_float(args.grad.dtype,
                       [&](auto grad) { launch<decltype(param), decltype(grad)>(stream, args); });
    });
    check_launch("adamw", args.master);
}

}  // namespace ingot::cuda
