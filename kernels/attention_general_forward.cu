// Online softmax: a block keeps one tile of queries and walks over the tiles of keys up to its
// diagonal; each row's running maximum and sum live in the 16 threads that own the row.
#include "kernels/attention_general.cuh"
#include "kernels/attention_general.h"

namespace ingot::cuda {
namespace general_attention {
namespace {

template <class T>
struct ForwardArrays {
    T* out;
    float* lse;
    const T* qkv;
    Layout l;
};

template <class S, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const ForwardArrays<T> a) {
    extern __shared__ float shared[];
    float* queries = shared;
    float* rows = queries + S::kTileFloats;  // keys, then values
    float* weights = rows + S::kTileFloats;
    const Layout& l = a.l;
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const int h = static_cast<int>(blockIdx.y);
    const std::int64_t b = l.first_batch + blockIdx.z;
    const int kv = h / (l.NH / l.NKV);
    // The last tiles have the most keys: they go first.
    const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    const std::int64_t first_query = static_cast<std::int64_t>(tile) * S::kTile;
    const T* keys = a.qkv + l.qkv_offset(b, l.NH + kv);
    const T* values = a.qkv + l.qkv_offset(b, l.NH + l.NKV + kv);
    load_tile<S>(queries, a.qkv + l.qkv_offset(b, h), l.qkv_stride(), first_query, l);
    float4 sums[S::kOwn][S::kGroups];
    float top[S::kOwn], total[S::kOwn];  // of scores in units of log 2
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
        top[r] = -INFINITY;
        total[r] = 0.0F;
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g)
            sums[r][g] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
    for (int key_tile = 0; key_tile <= tile; ++key_tile) {
        const std::int64_t first_key = static_cast<std::int64_t>(key_tile) * S::kTile;
        load_tile<S>(rows, keys, l.qkv_stride(), first_key, l);
        __syncthreads();
        float scores[S::kOwn][S::kOwn];
        multiply_rows<S>(scores, queries, rows, l.HS);
#pragma unroll
        for (int r = 0; r < S::kOwn; ++r) {
            const std::int64_t i = first_query + ty + 16 * r;
            float row_top = top[r];
#pragma unroll
            for (int c = 0; c < S::kOwn; ++c) {
                const std::int64_t j = first_key + tx + 16 * c;
                scores[r][c] = j <= i ? scores[r][c] * (l.scale * kLog2e) : -INFINITY;
                row_top = fmaxf(row_top, scores[r][c]);
            }
            row_top = warp_max<16>(row_top);  // finite: key first_key <= i is always allowed
            const float shrink = exp2f(top[r] - row_top);
            float row_total = 0.0F;
#pragma unroll
            for (int c = 0; c < S::kOwn; ++c) {
                const float weight = exp2f(scores[r][c] - row_top);
                weights[(ty + 16 * r) * S::kScoreStride + tx + 16 * c] = weight;
                row_total += weight;
            }
            total[r] = total[r] * shrink + warp_sum<16>(row_total);
            top[r] = row_top;
#pragma unroll
            for (int g = 0; g < S::kGroups; ++g) {
                sums[r][g].x *= shrink;
                sums[r][g].y *= shrink;
                sums[r][g].z *= shrink;
                sums[r][g].w *= shrink;
            }
        }
        __syncthreads();
        load_tile<S>(rows, values, l.qkv_stride(), first_key, l);
        __syncthreads();
        add_weighted<S>(sums, weights, rows);
        __syncthreads();
    }
    float inverse[S::kOwn];
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
        inverse[r] = 1.0F / total[r];
        const std::int64_t i = first_query + ty + 16 * r;
        if (tx == 0 && i < l.T) {
            a.lse[l.lse_offset(b, h) + i] = (top[r] + log2f(total[r])) / kLog2e;
        }
    }
    store_rows<S>(a.out + l.out_offset(b, h), l.out_stride(), first_query, l, sums, inverse);
}

template <class S, class T>
void launch_forward(Stream stream, const ForwardArrays<T>& a, const TensorShape& qkv) {
    const std::int64_t tiles = ceil_div<std::int64_t>(a.l.T, S::kTile);
    const Grid grid{"attention_forward", qkv, tiles, a.l.NH};
    launch(stream, forward_kernel<S, T>, a, grid, 2 * S::kTileFloats + S::kScoreFloats);
}

}  // namespace
}  // namespace general_attention

void general_attention_forward(Stream stream, const AttentionForward& args) {
    using namespace general_attention;
    dispatch_float(args.qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        const ForwardArrays<T> a = {args.out.ptr<T>(), args.lse.ptr<float>(), args.qkv.ptr<T>(),
                                    layout_of(args)};
        if (a.l.HS <= 64) {
            launch_forward<Shape<64, 64>>(stream, a, args.qkv);
        } else if (a.l.HS <= 128) {
            launch_forward<Shape<128, 64>>(stream, a, args.qkv);
        } else {
            launch_forward<Shape<256, 32>>(stream, a, args.qkv);
        }
    });
    check_launch("attention_forward", args.qkv);
}

}  // namespace ingot::cuda
