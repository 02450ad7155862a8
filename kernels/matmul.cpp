#include "kernels/matmul.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/core/op_range.h"
#include "kernels/blas.h"
#include "kernels/contract.h"
#include "kernels/cpu_math.h"

namespace ingot {
namespace {

// The tensor is on the device, has this dtype and rows x columns elements.
void check_matrix(Stream stream,
                  const ConstTensor& tensor,
                  DType dtype,
                  std::int64_t rows,
                  std::int64_t columns,
                  const std::string& what) {
    contract::require_on_device(stream, tensor, what.c_str());
    contract::require_dtype("matmul.dtype", tensor, dtype, what.c_str());
    ENSURE(tensor.num_dims >= 1 && tensor.dim(-1) == columns && tensor.rows() == rows,
           "matmul.shape", what, " is ", tensor.shape_string(), ", must be ", rows, " rows of ",
           columns);
}

// weight (OC, C) gives the widths, the first matrix of the op gives dtype and rows.
void check_weight(Stream stream, const ConstTensor& weight, DType dtype, const std::string& what) {
    contract::require_on_device(stream, weight, what.c_str());
    contract::require_dtype("matmul.dtype", weight, dtype, what.c_str());
    ENSURE(weight.num_dims == 2 && weight.dim(0) > 0 && weight.dim(1) > 0, "matmul.shape", what,
           " is ", weight.shape_string(), ", must be (OC, C) with OC >= 1 and C >= 1");
}

std::int64_t rows_of(Stream stream, const ConstTensor& tensor, const char* what) {
    contract::require_on_device(stream, tensor, what);
    contract::require_float("matmul.dtype", tensor, what);
    ENSURE(tensor.num_dims >= 1, "matmul.shape", what, " is ", tensor.shape_string(),
           ", must have at least one dimension");
    return tensor.rows();
}

void check(Stream stream, const MatmulForward& a) {
    const std::int64_t N = rows_of(stream, a.inp, "matmul_forward: inp");
    check_weight(stream, a.weight, a.inp.dtype, "matmul_forward: weight");
    const std::int64_t OC = a.weight.dim(0);
    check_matrix(stream, a.inp, a.inp.dtype, N, a.weight.dim(1), "matmul_forward: inp");
    check_matrix(stream, a.out, a.inp.dtype, N, OC, "matmul_forward: out");
    if (a.pre_gelu) {
        check_matrix(stream, a.pre_gelu, a.inp.dtype, N, OC, "matmul_forward: pre_gelu");
    }
    if (a.bias) check_matrix(stream, a.bias, a.inp.dtype, 1, OC, "matmul_forward: bias");
}

void check(Stream stream, const MatmulDgrad& a) {
    const std::int64_t N = rows_of(stream, a.dout, "matmul_dgrad: dout");
    check_weight(stream, a.weight, a.dout.dtype, "matmul_dgrad: weight");
    const std::int64_t C = a.weight.dim(1);
    check_matrix(stream, a.dout, a.dout.dtype, N, a.weight.dim(0), "matmul_dgrad: dout");
    check_matrix(stream, a.dinp, a.dout.dtype, N, C, "matmul_dgrad: dinp");
    if (a.pre_gelu) {
        check_matrix(stream, a.pre_gelu, a.dout.dtype, N, C, "matmul_dgrad: pre_gelu");
    }
}

void check(Stream stream, const MatmulWgrad& a) {
    const std::int64_t N = rows_of(stream, a.dout, "matmul_wgrad: dout");
    contract::require_float("matmul.dtype", a.dweight, "matmul_wgrad: dweight");
    check_weight(stream, a.dweight, a.dweight.dtype, "matmul_wgrad: dweight");
    check_matrix(stream, a.dout, a.dout.dtype, N, a.dweight.dim(0), "matmul_wgrad: dout");
    check_matrix(stream, a.inp, a.dout.dtype, N, a.dweight.dim(1), "matmul_wgrad: inp");
}

// ------------------------------------------------------------------------------------ CPU: blocks

}  // namespace

// Blocks of fp32: what bf16 operands are widened to, and what their products are before they are
// rounded. They grow to the largest call and are kept.
struct cpu::MatmulBlocks {
    std::vector<float> left, right, product;
};

namespace {

using cpu::MatmulBlocks;

float* with_room(std::vector<float>* block, std::int64_t elements) {
    const auto size = static_cast<std::size_t>(elements);
    if (block->size() < size) block->resize(size);
    return block->data();
}

// An fp32 matrix as the BLAS sees it.
struct Operand {
    const float* data;
    std::int64_t stride;
};

// Rows [row, row + rows) and columns [column, column + columns) of a matrix with `stride` columns.
template <class T>
struct Block {
    const T* matrix;
    std::int64_t stride;
    std::int64_t row, rows;
    std::int64_t column, columns;
};

// fp32 operands are used where they are; bf16 ones are widened into `scratch`.
Operand as_float(const Block<float>& b, std::vector<float>*) {
    return {b.matrix + b.row * b.stride + b.column, b.stride};
}

Operand as_float(const Block<bf16>& b, std::vector<float>* scratch) {
    float* out = with_room(scratch, b.rows * b.columns);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < b.rows; ++i) {
        const bf16* from = b.matrix + (b.row + i) * b.stride + b.column;
        for (std::int64_t j = 0; j < b.columns; ++j)
            out[i * b.columns + j] = to_float(from[j]);
    }
    return {out, b.columns};
}

// How many rows of `columns` elements are treated at a time: all of them in fp32, where nothing is
// copied; in bf16 about 4 MiB of fp32 scratch, so that no whole matrix is ever widened.
template <class T>
std::int64_t block_rows(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kElements = 1 << 20;
    if (std::is_same_v<T, float>) return std::max<std::int64_t>(rows, 1);
    return std::max<std::int64_t>(kElements / columns, 32);
}

// ------------------------------------------------------------------------------------- CPU: fprop

// out = sums + bias, or gelu of it, for a block of rows x columns. sums may be out itself; bias and
// pre_gelu may be null. out and pre_gelu have OC columns.
template <class T>
struct ForwardEpilogue {
    Operand sums;
    T* out;
    T* pre_gelu;
    const T* bias;
    std::int64_t rows, columns, OC;
};

// One loop per case: a test inside it would keep it from being vectorized.
template <bool kHasBias, bool kHasGelu, class T>
void run(const ForwardEpilogue<T>& e) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < e.rows; ++i) {
        const float* sum = e.sums.data + i * e.sums.stride;
        const T* bias = e.bias;
        T* out = e.out + i * e.OC;
        T* pre_gelu = kHasGelu ? e.pre_gelu + i * e.OC : nullptr;
#pragma omp simd
        for (std::int64_t j = 0; j < e.columns; ++j) {
            const float x = kHasBias ? sum[j] + to_float(bias[j]) : sum[j];
            if constexpr (kHasGelu) pre_gelu[j] = from_float<T>(x);
            out[j] = from_float<T>(kHasGelu ? cpu_math::gelu(x) : x);
        }
    }
}

template <class T>
void run(const ForwardEpilogue<T>& e) {
    if (e.bias != nullptr) {
        e.pre_gelu != nullptr ? run<true, true>(e) : run<true, false>(e);
    } else {
        e.pre_gelu != nullptr ? run<false, true>(e) : run<false, false>(e);
    }
}

template <class T>
void forward(const MatmulForward& a, MatmulBlocks* blocks) {
    const std::int64_t N = a.inp.rows();
    const std::int64_t OC = a.weight.dim(0);
    const std::int64_t C = a.weight.dim(1);
    constexpr bool kInPlace = std::is_same_v<T, float>;  // the product is formed in out itself
    const std::int64_t step_oc = std::min(block_rows<T>(OC, C), OC);
    const std::int64_t step_n = block_rows<T>(N, std::max(C, step_oc));
    for (std::int64_t oc = 0; oc < OC; oc += step_oc) {
        const std::int64_t columns = std::min(step_oc, OC - oc);
        const Operand w =
            as_float(Block<T>{a.weight.ptr<T>(), C, oc, columns, 0, C}, &blocks->right);
        for (std::int64_t n = 0; n < N; n += step_n) {
            const std::int64_t rows = std::min(step_n, N - n);
            const Operand x = as_float(Block<T>{a.inp.ptr<T>(), C, n, rows, 0, C}, &blocks->left);
            T* out = a.out.ptr<T>() + n * OC + oc;
            float* sums;
            if constexpr (kInPlace) {
                sums = out;
            } else {
                sums = with_room(&blocks->product, rows * columns);
            }
            const std::int64_t stride = kInPlace ? OC : columns;
            blas::sgemm({.c = sums,
                         .a = x.data,
                         .b = w.data,
                         .M = rows,
                         .N = columns,
                         .K = C,
                         .stride_c = stride,
                         .stride_a = x.stride,
                         .stride_b = w.stride,
                         .transpose_a = false,
                         .transpose_b = true,
                         .accumulate = false});
            if (kInPlace && !a.bias && !a.pre_gelu) continue;
            run(ForwardEpilogue<T>{{sums, stride},
                                   out,
                                   a.pre_gelu ? a.pre_gelu.ptr<T>() + n * OC + oc : nullptr,
                                   a.bias ? a.bias.ptr<T>() + oc : nullptr,
                                   rows,
                                   columns,
                                   OC});
        }
    }
}

// ------------------------------------------------------------------------------------- CPU: dgrad

// dinp = sums, or sums * gelu'(pre_gelu), elementwise. sums may be dinp itself.
template <class T>
void dgrad_epilogue(const float* sums, T* dinp, const T* pre_gelu, std::int64_t count) {
    if (pre_gelu == nullptr) {
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i)
            dinp[i] = from_float<T>(sums[i]);
    } else {
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) {
            const float slope = cpu_math::gelu_derivative(to_float(pre_gelu[i]));
            dinp[i] = from_float<T>(sums[i] * slope);
        }
    }
}

template <class T>
void dgrad(const MatmulDgrad& a, MatmulBlocks* blocks) {
    const std::int64_t N = a.dout.rows();
    const std::int64_t OC = a.weight.dim(0);
    const std::int64_t C = a.weight.dim(1);
    constexpr bool kInPlace = std::is_same_v<T, float>;
    const std::int64_t step_oc = std::min(block_rows<T>(OC, C), OC);
    const std::int64_t step_n = block_rows<T>(N, std::max(C, step_oc));
    for (std::int64_t n = 0; n < N; n += step_n) {
        const std::int64_t rows = std::min(step_n, N - n);
        T* dinp = a.dinp.ptr<T>() + n * C;
        float* sums;
        if constexpr (kInPlace) {
            sums = dinp;
        } else {
            sums = with_room(&blocks->product, rows * C);
        }
        for (std::int64_t oc = 0; oc < OC; oc += step_oc) {
            const std::int64_t terms = std::min(step_oc, OC - oc);
            const Operand d =
                as_float(Block<T>{a.dout.ptr<T>(), OC, n, rows, oc, terms}, &blocks->left);
            const Operand w =
                as_float(Block<T>{a.weight.ptr<T>(), C, oc, terms, 0, C}, &blocks->right);
            blas::sgemm({.c = sums,
                         .a = d.data,
                         .b = w.data,
                         .M = rows,
                         .N = C,
                         .K = terms,
                         .stride_c = C,
                         .stride_a = d.stride,
                         .stride_b = w.stride,
                         .transpose_a = false,
                         .transpose_b = false,
                         .accumulate = oc > 0});
        }
        if (kInPlace && !a.pre_gelu) continue;
        dgrad_epilogue<T>(sums, dinp, a.pre_gelu ? a.pre_gelu.ptr<T>() + n * C : nullptr, rows * C);
    }
}

// ------------------------------------------------------------------------------------- CPU: wgrad

// sums (columns, C) (+)= dout[:, oc .. oc + columns)^T @ inp.
template <class T>
void wgrad_sums(const MatmulWgrad& a,
                MatmulBlocks* blocks,
                std::int64_t oc,
                std::int64_t columns,
                float* sums,
                bool accumulate) {
    const std::int64_t N = a.dout.rows();
    const std::int64_t OC = a.dweight.dim(0);
    const std::int64_t C = a.dweight.dim(1);
    const std::int64_t step_n = block_rows<T>(N, std::max(C, columns));
    for (std::int64_t n = 0; n == 0 || n < N; n += step_n) {  // once for N = 0: it may overwrite
        const std::int64_t rows = std::min(step_n, N - n);
        const Operand d =
            as_float(Block<T>{a.dout.ptr<T>(), OC, n, rows, oc, columns}, &blocks->left);
        const Operand x = as_float(Block<T>{a.inp.ptr<T>(), C, n, rows, 0, C}, &blocks->right);
        blas::sgemm({.c = sums,
                     .a = d.data,
                     .b = x.data,
                     .M = columns,
                     .N = C,
                     .K = rows,
                     .stride_c = C,
                     .stride_a = d.stride,
                     .stride_b = x.stride,
                     .transpose_a = true,
                     .transpose_b = false,
                     .accumulate = accumulate || n > 0});
    }
}

// fp32 gradients are summed where they are. bf16 ones are rounded once, from the fp32 sum of a
// block of rows of dweight.
template <class T, class G>
void wgrad(const MatmulWgrad& a, MatmulBlocks* blocks) {
    const std::int64_t OC = a.dweight.dim(0);
    const std::int64_t C = a.dweight.dim(1);
    G* dweight = a.dweight.ptr<G>();
    if constexpr (std::is_same_v<G, float>) {
        wgrad_sums<T>(a, blocks, 0, OC, dweight, a.accumulate);
    } else {
        const std::int64_t step = block_rows<G>(OC, C);
        for (std::int64_t oc = 0; oc < OC; oc += step) {
            const std::int64_t columns = std::min(step, OC - oc);
            float* sum = with_room(&blocks->product, columns * C);
            wgrad_sums<T>(a, blocks, oc, columns, sum, false);
            G* out = dweight + oc * C;
            const bool accumulate = a.accumulate;
#pragma omp parallel for schedule(static)
            for (std::int64_t i = 0; i < columns * C; ++i) {
                out[i] = from_float<G>(sum[i] + (accumulate ? to_float(out[i]) : 0.0F));
            }
        }
    }
}

// Of (N, C) with (OC, C), whichever of the three passes it is.
double product_flops(const ConstTensor& inp, const ConstTensor& weight) {
    return 2.0 * static_cast<double>(inp.numel()) * static_cast<double>(weight.dim(0));
}

}  // namespace

void matmul_forward(Stream stream, const MatmulForward& args) {
    check(stream, args);
    const OpRange range(
        stream, "matmul_forward",
        {.bytes = bytes_of_tensors(args.out, args.pre_gelu, args.inp, args.weight, args.bias),
         .flops = product_flops(args.inp, args.weight),
         .dtype = args.inp.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::matmul_forward(stream, args);
    }
    auto* blocks = &stream.context().object<cpu::MatmulBlocks>();
    stream.run([args, blocks] { cpu::matmul_forward(args, blocks); });
}

void matmul_dgrad(Stream stream, const MatmulDgrad& args) {
    check(stream, args);
    const OpRange range(
        stream, "matmul_dgrad",
        {.bytes = bytes_of_tensors(args.dinp, args.dout, args.weight, args.pre_gelu),
         .flops = product_flops(args.dinp, args.weight),
         .dtype = args.dout.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::matmul_dgrad(stream, args);
    }
    auto* blocks = &stream.context().object<cpu::MatmulBlocks>();
    stream.run([args, blocks] { cpu::matmul_dgrad(args, blocks); });
}

void matmul_wgrad(Stream stream, const MatmulWgrad& args) {
    check(stream, args);
    const OpRange range(stream, "matmul_wgrad",
                        {.bytes = bytes_of_tensors(args.dout, args.inp) +
                                  (args.accumulate ? 2 : 1) * args.dweight.size_bytes(),
                         .flops = product_flops(args.inp, args.dweight),
                         .dtype = args.dout.dtype});
    if constexpr (kHasCuda) {
        if (stream.device() == Device::cuda) return cuda::matmul_wgrad(stream, args);
    }
    auto* blocks = &stream.context().object<cpu::MatmulBlocks>();
    stream.run([args, blocks] { cpu::matmul_wgrad(args, blocks); });
}

namespace cpu {

void matmul_forward(const MatmulForward& args, MatmulBlocks* blocks) {
    dispatch_float(args.inp.dtype, [&](auto zero) { forward<decltype(zero)>(args, blocks); });
}

void matmul_dgrad(const MatmulDgrad& args, MatmulBlocks* blocks) {
    dispatch_float(args.dout.dtype, [&](auto zero) { dgrad<decltype(zero)>(args, blocks); });
}

void matmul_wgrad(const MatmulWgrad& args, MatmulBlocks* blocks) {
    dispatch_float(args.dout.dtype, [&](auto operand) {
        dispatch_float(args.dweight.dtype, [&](auto gradient) {
            wgrad<decltype(operand), decltype(gradient)>(args, blocks);
        });
    });
}

}  // namespace cpu
}  // namespace ingot
