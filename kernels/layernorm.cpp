#include "kernels/layernorm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/device/layernorm_grid.h"

namespace ingot {
namespace {

struct NormTensors {
    ConstTensor inp;     // (N, C)
    ConstTensor weight;  // (C)
    ConstTensor mean;    // (N)
    ConstTensor rstd;    // (N)
};

// What forward and backward have in common. `op` and the tensor's name make the message.
void check_norm(Stream stream, const NormTensors& t, const std::string& op) {
    const std::int64_t N = t.inp.rows();
    const std::int64_t C = t.inp.dim(-1);
    contract::require_on_device(stream, t.inp, (op + ": inp").c_str());
    contract::require_on_device(stream, t.weight, (op + ": weight").c_str());
    contract::require_on_device(stream, t.mean, (op + ": mean").c_str());
    contract::require_on_device(stream, t.rstd, (op + ": rstd").c_str());
    contract::require_float("layernorm.dtype", t.inp, (op + ": inp").c_str());
    ENSURE(C > 0, "layernorm.shape", op, ": inp is ", t.inp.shape_string(),
           "; a row needs at least one channel");
    contract::require_row("layernorm.shape", t.inp, (op + ": inp").c_str());
    ENSURE(t.weight.num_dims == 1 && t.weight.dim(0) == C, "layernorm.shape", op, ": weight has ",
           t.weight.numel(), " elements but C=", C, "; pass the weight of this layer's width");
    contract::require_dtype("layernorm.dtype", t.weight, t.inp.dtype, (op + ": weight").c_str());
    contract::require_shape("layernorm.shape", t.mean, {N}, (op + ": mean").c_str());
    contract::require_shape("layernorm.shape", t.rstd, {N}, (op + ": rstd").c_str());
    contract::require_dtype("layernorm.dtype", t.mean, DType::f32, (op + ": mean").c_str());
    contract::require_dtype("layernorm.dtype", t.rstd, DType::f32, (op + ": rstd").c_str());
}

// A tensor that must look exactly like another one.
void check_like(Stream stream,
                const ConstTensor& tensor,
                const ConstTensor& like,
                const std::string& what) {
    contract::require_on_device(stream, tensor, what.c_str());
    contract::require_dtype("layernorm.dtype", tensor, like.dtype, what.c_str());
    ENSURE(tensor.same_shape(like), "layernorm.shape", what, " is ", tensor.shape_string(),
           ", must be ", like.shape_string());
}

void check_eps(float eps, const std::string& op) {
    ENSURE(std::isfinite(eps) && eps > 0.0F, "layernorm.eps", op, ": eps = ", eps,
           ", must be above 0; GPT-2 uses 1e-5");
}

void check(Stream stream, const LayerNormForward& a) {
    const std::string op = "layernorm_forward";
    check_norm(stream, {a.inp, a.weight, a.mean, a.rstd}, op);
    check_like(stream, a.out, a.inp, op + ": out");
    check_like(stream, a.bias, a.weight, op + ": bias");
    check_eps(a.eps, op);
}

void check(Stream stream, const ResidualLayerNormForward& a) {
    const std::string op = "residual_layernorm_forward";
    check_norm(stream, {a.inp1, a.weight, a.mean, a.rstd}, op);
    check_like(stream, a.inp2, a.inp1, op + ": inp2");
    check_like(stream, a.residual, a.inp1, op + ": residual");
    check_like(stream, a.out, a.inp1, op + ": out");
    check_like(stream, a.bias, a.weight, op + ": bias");
    check_eps(a.eps, op);
}

void check(Stream stream, const LayerNormBackward& a) {
    const std::string op = "layernorm_backward";
    check_norm(stream, {a.inp, a.weight, a.mean, a.rstd}, op);
    check_like(stream, a.dout, a.inp, op + ": dout");
    check_like(stream, a.dinp, a.inp, op + ": dinp");
    if (a.dresidual) check_like(stream, a.dresidual, a.inp, op + ": dresidual");
    contract::require_on_device(stream, a.dweight, "layernorm_backward: dweight");
    contract::require_float("layernorm.dtype", a.dweight, "layernorm_backward: dweight");
    contract::require_shape("layernorm.shape", a.dweight, {a.inp.dim(-1)},
                            "layernorm_backward: dweight");
    check_like(stream, a.dbias, a.dweight, op + ": dbias");
    const std::int64_t scratch_bytes =
        layernorm_backward_scratch_bytes(stream.device(), a.inp.rows(), a.inp.dim(-1));
    contract::require_scratch("layernorm.scratch", stream, a.scratch, scratch_bytes,
                              "layernorm_backward: scratch");
}

// Mean and reciprocal standard deviation of one row, in two passes.
template <class T>
void row_statistics(const T* x, std::int64_t C, float eps, float* mean, float* rstd) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < C; ++i)
        sum += to_float(x[i]);
    const double m = sum / static_cast<double>(C);
    double sum_squares = 0.0;
    for (std::int64_t i = 0; i < C; ++i) {
        const double centered = to_float(x[i]) - m;
        sum_squares += centered * centered;
    }
    *mean = static_cast<float>(m);
    *rstd = static_cast<float>(1.0 / std::sqrt(sum_squares / static_cast<double>(C) + eps));
}

// One row of the forward pass.
template <class T>
void normalize_row(
    T* out, const T* x, const T* weight, const T* bias, std::int64_t C, float mean, float rstd) {
    for (std::int64_t i = 0; i < C; ++i) {
        const float xhat = (to_float(x[i]) - mean) * rstd;
        out[i] = from_float<T>(xhat * to_float(weight[i]) + to_float(bias[i]));
    }
}

// dinp of all rows.
template <class T>
void input_gradient(const LayerNormBackward& a) {
    const std::int64_t N = a.inp.rows();
    const std::int64_t C = a.inp.dim(-1);
    const T* weight = a.weight.ptr<T>();
    const float* mean = a.mean.ptr<float>();
    const float* rstd = a.rstd.ptr<float>();
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < N; ++n) {
        const T* x = a.inp.ptr<T>() + n * C;
        const T* dout = a.dout.ptr<T>() + n * C;
        const T* dresidual = a.dresidual ? a.dresidual.ptr<T>() + n * C : nullptr;
        T* dinp = a.dinp.ptr<T>() + n * C;
        double sum_g = 0.0;
        double sum_g_xhat = 0.0;
        for (std::int64_t i = 0; i < C; ++i) {
            const float g = to_float(dout[i]) * to_float(weight[i]);
            sum_g += g;
            sum_g_xhat += g * (to_float(x[i]) - mean[n]) * rstd[n];
        }
        const float mean_g = static_cast<float>(sum_g / static_cast<double>(C));
        const float mean_g_xhat = static_cast<float>(sum_g_xhat / static_cast<double>(C));
        for (std::int64_t i = 0; i < C; ++i) {
            const float g = to_float(dout[i]) * to_float(weight[i]);
            const float xhat = (to_float(x[i]) - mean[n]) * rstd[n];
            const float past_the_norm = dresidual == nullptr ? 0.0F : to_float(dresidual[i]);
            dinp[i] = from_float<T>(past_the_norm + rstd[n] * (g - mean_g - xhat * mean_g_xhat));
        }
    }
}

// dweight and dbias. Threads own columns, so the order of the sum over rows is fixed.
template <class T, class G>
void parameter_gradients(const LayerNormBackward& a) {
    constexpr std::int64_t kColumns = 64;  // one block's sums stay in the first-level cache
    const std::int64_t N = a.inp.rows();
    const std::int64_t C = a.inp.dim(-1);
    const T* x = a.inp.ptr<T>();
    const T* dout = a.dout.ptr<T>();
    const float* mean = a.mean.ptr<float>();
    const float* rstd = a.rstd.ptr<float>();
    G* dweight = a.dweight.ptr<G>();
    G* dbias = a.dbias.ptr<G>();
#pragma omp parallel for schedule(static)
    for (std::int64_t begin = 0; begin < C; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, C - begin);
        double weight_sum[kColumns] = {};
        double bias_sum[kColumns] = {};
        for (std::int64_t n = 0; n < N; ++n) {
            for (std::int64_t i = 0; i < count; ++i) {
                const float d = to_float(dout[n * C + begin + i]);
                weight_sum[i] += d * (to_float(x[n * C + begin + i]) - mean[n]) * rstd[n];
                bias_sum[i] += d;
            }
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const double old_weight = a.accumulate ? to_float(dweight[begin + i]) : 0.0;
            const double old_bias = a.accumulate ? to_float(dbias[begin + i]) : 0.0;
            dweight[begin + i] = from_float<G>(static_cast<float>(old_weight + weight_sum[i]));
            dbias[begin + i] = from_float<G>(static_cast<float>(old_bias + bias_sum[i]));
        }
    }
}

}  // namespace

void layernorm_forward(Stream stream, const LayerNormForward& args) {
    check(stream, args);
    const OpRange range(stream, "layernorm_forward",
                        {.bytes = bytes_of_tensors(args.out, args.mean, args.rstd, args.inp,
                                                   args.weight, args.bias),
                         .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::layernorm_forward(stream, args);
    }
    stream.run([args] { cpu::layernorm_forward(args); });
}

void residual_layernorm_forward(Stream stream, const ResidualLayerNormForward& args) {
    check(stream, args);
    const OpRange range(stream, "residual_layernorm_forward",
                        {.bytes = bytes_of_tensors(args.residual, args.out, args.mean, args.rstd,
                                                   args.inp1, args.inp2, args.weight, args.bias),
                         .dtype = args.inp1.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::residual_layernorm_forward(stream, args);
    }
    stream.run([args] { cpu::residual_layernorm_forward(args); });
}

void layernorm_backward(Stream stream, const LayerNormBackward& args) {
    check(stream, args);
    const OpRange range(
        stream, "layernorm_backward",
        {.bytes = bytes_of_tensors(args.dinp, args.dout, args.dresidual, args.inp, args.weight,
                                   args.mean, args.rstd) +
                  (args.accumulate ? 2 : 1) * bytes_of_tensors(args.dweight, args.dbias),
         .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::layernorm_backward(stream, args);
    }
    stream.run([args] { cpu::layernorm_backward(args); });
}

std::int64_t layernorm_backward_scratch_bytes(Device device, std::int64_t N, std::int64_t C) {
    return device == Device::cuda ? cuda::layernorm_backward_scratch_bytes(N, C) : 0;
}

namespace cpu {

void layernorm_forward(const LayerNormForward& a) {
    dispatch_float(a.inp.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t N = a.inp.rows();
        const std::int64_t C = a.inp.dim(-1);
        float* mean = a.mean.ptr<float>();
        float* rstd = a.rstd.ptr<float>();
#pragma omp parallel for schedule(static)
        for (std::int64_t n = 0; n < N; ++n) {
            const T* x = a.inp.ptr<T>() + n * C;
            row_statistics(x, C, a.eps, &mean[n], &rstd[n]);
            normalize_row(a.out.ptr<T>() + n * C, x, a.weight.ptr<T>(), a.bias.ptr<T>(), C, mean[n],
                          rstd[n]);
        }
    });
}

void residual_layernorm_forward(const ResidualLayerNormForward& a) {
    dispatch_float(a.inp1.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t N = a.inp1.rows();
        const std::int64_t C = a.inp1.dim(-1);
        float* mean = a.mean.ptr<float>();
        float* rstd = a.rstd.ptr<float>();
#pragma omp parallel for schedule(static)
        for (std::int64_t n = 0; n < N; ++n) {
            const T* inp1 = a.inp1.ptr<T>() + n * C;
            const T* inp2 = a.inp2.ptr<T>() + n * C;
            T* residual = a.residual.ptr<T>() + n * C;
            for (std::int64_t i = 0; i < C; ++i) {
                residual[i] = from_float<T>(to_float(inp1[i]) + to_float(inp2[i]));
            }
            row_statistics(residual, C, a.eps, &mean[n], &rstd[n]);
            normalize_row(a.out.ptr<T>() + n * C, residual, a.weight.ptr<T>(), a.bias.ptr<T>(), C,
                          mean[n], rstd[n]);
        }
    });
}

// The parameter gradients come first: dinp may be the same memory as dout.
void layernorm_backward(const LayerNormBackward& a) {
    dispatch_float(a.inp.dtype, [&](auto activation) {
        dispatch_float(a.dweight.dtype, [&](auto gradient) {
            parameter_gradients<decltype(activation), decltype(gradient)>(a);
        });
        input_gradient<decltype(activation)>(a);
    });
}

}  // namespace cpu
}  // namespace ingot
