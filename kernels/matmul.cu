// The matmuls as products of cuBLASLt. The GELU epilogues of fp32 run as kernels of their own: the
// stored pre-activation is the exact sum there, and kernels/gelu.cu has the accuracy that fp32 asks
// for.
#include "kernels/device/launch.cuh"
#include "kernels/gelu.h"
#include "kernels/matmul.h"
#include "kernels/matmul_library.h"

namespace ingot::cuda {
namespace {

int alignment_of(std::initializer_list<const void*> pointers) {
    for (const int bytes : {16, 8, 4}) {
        bool fits = true;
        for (const void* pointer : pointers)
            fits = fits && is_aligned(pointer, static_cast<std::size_t>(bytes));
        if (fits) return bytes;
    }
    return 2;
}

void run(Stream stream, MatmulPass pass, const GeneralMatmul& g, const void* a, const void* b) {
    const bool is_forward = pass == MatmulPass::forward;
    LibraryMatmul call{};
    call.key = {pass, g.epilogue, g.a.dtype, g.out.dtype, g.accumulate, 16, 0, 0, 0};
    call.key.N = pass == MatmulPass::wgrad ? g.K : g.M;
    call.key.OC = is_forward ? g.N : pass == MatmulPass::dgrad ? g.K : g.M;
    call.key.C = is_forward ? g.K : g.N;
    call.key.alignment = alignment_of({a, b, g.out.data, g.bias.data, g.aux.data});
    call.a = a;
    call.b = b;
    call.d = g.out.data;
    call.bias = g.bias.data;
    call.aux = g.aux.data;
    call.d_bytes = g.M * g.N * size_of(g.out.dtype);
    call.general = g;
    run_matmul(stream, call);
}

}  // namespace

void matmul_forward(Stream stream, const MatmulForward& args) {
    const std::int64_t N = args.inp.rows();
    const std::int64_t OC = args.weight.dim(0);
    const std::int64_t C = args.weight.dim(1);
    if (N == 0) return;
    const bool is_split = args.pre_gelu && args.out.dtype == DType::f32;
    const bool is_fused = args.pre_gelu && !is_split;
    const MatmulEpilogue epilogue =
        is_fused ? (args.bias ? MatmulEpilogue::gelu_bias : MatmulEpilogue::gelu)
                 : (args.bias ? MatmulEpilogue::bias : MatmulEpilogue::none);
    const GeneralMatmul product = {is_split ? args.pre_gelu : args.out,
                                   is_fused ? args.pre_gelu : Tensor{},
                                   args.inp,
                                   args.weight,
                                   args.bias,
                                   N,
                                   OC,
                                   C,
                                   C,
                                   1,
                                   1,
                                   C,
                                   epilogue,
                                   false};
    run(stream, MatmulPass::forward, product, args.weight.data, args.inp.data);
    if (is_split) cuda::gelu_forward(stream, GeluForward{args.out, args.pre_gelu});
}

void matmul_dgrad(Stream stream, const MatmulDgrad& args) {
    const std::int64_t N = args.dout.rows();
    const std::int64_t OC = args.weight.dim(0);
    const std::int64_t C = args.weight.dim(1);
    if (N == 0) return;
    const bool is_split = args.pre_gelu && args.dinp.dtype == DType::f32;
    const bool is_fused = args.pre_gelu && !is_split;
    Tensor aux;
    if (is_fused) {  // read only: the epilogue's aux is an input here
        aux = args.dinp;
        aux.data = const_cast<void*>(args.pre_gelu.data);
    }
    const GeneralMatmul product = {args.dinp,
                                   aux,
                                   args.dout,
                                   args.weight,
                                   ConstTensor{},
                                   N,
                                   C,
                                   OC,
                                   OC,
                                   1,
                                   C,
                                   1,
                                   is_fused ? MatmulEpilogue::dgelu : MatmulEpilogue::none,
                                   false};
    run(stream, MatmulPass::dgrad, product, args.weight.data, args.dout.data);
    if (is_split) cuda::gelu_backward(stream, GeluBackward{args.dinp, args.dinp, args.pre_gelu});
}

void matmul_wgrad(Stream stream, const MatmulWgrad& args) {
    const std::int64_t N = args.dout.rows();
    const std::int64_t OC = args.dweight.dim(0);
    const std::int64_t C = args.dweight.dim(1);
    if (N == 0) {
        if (!args.accumulate) fill_zero(stream, args.dweight);
        return;
    }
    const GeneralMatmul product = {args.dweight,
                                   Tensor{},
                                   args.dout,
                                   args.inp,
                                   ConstTensor{},
                                   OC,
                                   C,
                                   N,
                                   1,
                                   OC,
                                   C,
                                   1,
                                   MatmulEpilogue::none,
                                   args.accumulate};
    run(stream, MatmulPass::wgrad, product, args.inp.data, args.dout.data);
}

}  // namespace ingot::cuda
