// Three kernels without atomics: D_i = dout_i . out_i; dK and dV with one block a tile of keys,
// over the query heads of its group and the tiles of queries from the diagonal on; dQ with one
// block a tile of queries, over the tiles of keys up to the diagonal. Scores are computed twice.
#include "kernels/attention_general.cuh"
#include "kernels/attention_general.h"

namespace ingot::cuda {
namespace general_attention {
namespace {

constexpr const char* kOp = "attention_backward";

template <class T>
struct BackwardArrays {
    T* dqkv;
    float* dots;  // (B, NH, T), D_i
    const T* dout;
    const T* out;
    const float* lse;
    const T* qkv;
    Layout l;
    std::int64_t num_rows;  // B * T * NH
};

// One warp a (b, t, h).
template <class T>
__global__ void __launch_bounds__(kThreads) dots_kernel(const BackwardArrays<T> a) {
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
    if (row >= a.num_rows) return;
    const T* dout = a.dout + row * a.l.HS;
    const T* out = a.out + row * a.l.HS;
    float sum = 0.0F;
    for (int d = static_cast<int>(threadIdx.x) % 32; d < a.l.HS; d += 32)
        sum += widen(dout[d]) * widen(out[d]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 != 0) return;
    const int h = static_cast<int>(row % a.l.NH);
    const std::int64_t t = row / a.l.NH % a.l.T;
    const std::int64_t b = row / a.l.NH / a.l.T;
    a.dots[a.l.lse_offset(b, h) + t] = sum;
}

// p and ds of the pairs (query ty + 16 r, key tx + 16 c) of two tiles; 0 where causality or T
// forbids the pair.
template <class S>
struct Pairs {
    float p[S::kOwn][S::kOwn];
    float ds[S::kOwn][S::kOwn];
};

struct Tiles {
    const float* queries;
    const float* keys;
    const float* values;
    const float* douts;
};

template <class S, class T>
__device__ __forceinline__ void compute_pairs(Pairs<S>* pairs,
                                              const Tiles& tiles,
                                              const BackwardArrays<T>& a,
                                              std::int64_t statistics,  // offset of (b, h)
                                              std::int64_t first_query,
                                              std::int64_t first_key) {
    const Layout& l = a.l;
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    multiply_rows<S>(pairs->p, tiles.queries, tiles.keys, l.HS);
    multiply_rows<S>(pairs->ds, tiles.douts, tiles.values, l.HS);
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
        const std::int64_t i = first_query + ty + 16 * r;
        const float lse = i < l.T ? a.lse[statistics + i] : 0.0F;
        const float dot = i < l.T ? a.dots[statistics + i] : 0.0F;
#pragma unroll
        for (int c = 0; c < S::kOwn; ++c) {
            const std::int64_t j = first_key + tx + 16 * c;
            const bool is_allowed = j <= i && i < l.T;
            const float p = is_allowed ? exp2f((pairs->p[r][c] * l.scale - lse) * kLog2e) : 0.0F;
            pairs->p[r][c] = p;
            pairs->ds[r][c] = p * (pairs->ds[r][c] - dot);
        }
    }
}

// weights[key][query] <- what the thread owns, transposed.
template <class S>
__device__ __forceinline__ void store_transposed(float* weights,
                                                 const float (&own)[S::kOwn][S::kOwn]) {
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
#pragma unroll
        for (int c = 0; c < S::kOwn; ++c)
            weights[(tx + 16 * c) * S::kScoreStride + ty + 16 * r] = own[r][c];
    }
}

template <class S>
__device__ __forceinline__ void clear(float4 (&sums)[S::kOwn][S::kGroups]) {
#pragma unroll
    for (int r = 0; r < S::kOwn; ++r) {
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g)
            sums[r][g] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
}

template <int kOwn>
__device__ __forceinline__ void fill_factors(float (&factors)[kOwn], float value) {
#pragma unroll
    for (int r = 0; r < kOwn; ++r)
        factors[r] = value;
}

// blockIdx.y counts key/value heads.
template <class S, class T>
__global__ void __launch_bounds__(kThreads) key_value_kernel(const BackwardArrays<T> a) {
    extern __shared__ float shared[];
    float* keys = shared;
    float* values = keys + S::kTileFloats;
    float* queries = values + S::kTileFloats;
    float* douts = queries + S::kTileFloats;
    float* weights = douts + S::kTileFloats;
    const Layout& l = a.l;
    const std::int64_t b = l.first_batch + blockIdx.z;
    const int kv = static_cast<int>(blockIdx.y);
    const int group = l.NH / l.NKV;
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * S::kTile;
    const int key_slot = l.NH + kv;
    const int value_slot = key_slot + l.NKV;
    load_tile<S>(keys, a.qkv + l.qkv_offset(b, key_slot), l.qkv_stride(), first_key, l);
    load_tile<S>(values, a.qkv + l.qkv_offset(b, value_slot), l.qkv_stride(), first_key, l);
    float4 dkeys[S::kOwn][S::kGroups], dvalues[S::kOwn][S::kGroups];
    clear<S>(dkeys);
    clear<S>(dvalues);
    for (int h = kv * group; h < (kv + 1) * group; ++h) {
        for (std::int64_t first_query = first_key; first_query < l.T; first_query += S::kTile) {
            load_tile<S>(queries, a.qkv + l.qkv_offset(b, h), l.qkv_stride(), first_query, l);
            load_tile<S>(douts, a.dout + l.out_offset(b, h), l.out_stride(), first_query, l);
            __syncthreads();
            Pairs<S> pairs;
            compute_pairs(&pairs, {queries, keys, values, douts}, a, l.lse_offset(b, h),
                          first_query, first_key);
            store_transposed<S>(weights, pairs.p);
            __syncthreads();
            add_weighted<S>(dvalues, weights, douts);
            __syncthreads();
            store_transposed<S>(weights, pairs.ds);
            __syncthreads();
            add_weighted<S>(dkeys, weights, queries);
            __syncthreads();
        }
    }
    float factors[S::kOwn];
    fill_factors(factors, l.scale);
    store_rows<S>(a.dqkv + l.qkv_offset(b, key_slot), l.qkv_stride(), first_key, l, dkeys, factors);
    fill_factors(factors, 1.0F);
    store_rows<S>(a.dqkv + l.qkv_offset(b, value_slot), l.qkv_stride(), first_key, l, dvalues,
                  factors);
}

// blockIdx.y counts query heads.
template <class S, class T>
__global__ void __launch_bounds__(kThreads) query_kernel(const BackwardArrays<T> a) {
    extern __shared__ float shared[];
    float* queries = shared;
    float* douts = queries + S::kTileFloats;
    float* keys = douts + S::kTileFloats;
    float* values = keys + S::kTileFloats;
    float* weights = values + S::kTileFloats;
    const Layout& l = a.l;
    const int tx = static_cast<int>(threadIdx.x) % 16;
    const int ty = static_cast<int>(threadIdx.x) / 16;
    const std::int64_t b = l.first_batch + blockIdx.z;
    const int h = static_cast<int>(blockIdx.y);
    const int kv = h / (l.NH / l.NKV);
    const std::int64_t first_query =
        static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * S::kTile;
    load_tile<S>(queries, a.qkv + l.qkv_offset(b, h), l.qkv_stride(), first_query, l);
    load_tile<S>(douts, a.dout + l.out_offset(b, h), l.out_stride(), first_query, l);
    float4 dqueries[S::kOwn][S::kGroups];
    clear<S>(dqueries);
    for (std::int64_t first_key = 0; first_key <= first_query; first_key += S::kTile) {
        load_tile<S>(keys, a.qkv + l.qkv_offset(b, l.NH + kv), l.qkv_stride(), first_key, l);
        load_tile<S>(values, a.qkv + l.qkv_offset(b, l.NH + l.NKV + kv), l.qkv_stride(), first_key,
                     l);
        __syncthreads();
        Pairs<S> pairs;
        compute_pairs(&pairs, {queries, keys, values, douts}, a, l.lse_offset(b, h), first_query,
                      first_key);
#pragma unroll
        for (int r = 0; r < S::kOwn; ++r) {
#pragma unroll
            for (int c = 0; c < S::kOwn; ++c)
                weights[(ty + 16 * r) * S::kScoreStride + tx + 16 * c] = pairs.ds[r][c];
        }
        __syncthreads();
        add_weighted<S>(dqueries, weights, keys);
        __syncthreads();
    }
    float factors[S::kOwn];
    fill_factors(factors, l.scale);
    store_rows<S>(a.dqkv + l.qkv_offset(b, h), l.qkv_stride(), first_query, l, dqueries, factors);
}

template <class S, class T>
void launch_backward(Stream stream, const BackwardArrays<T>& a, const TensorShape& qkv) {
    const std::int64_t tiles = ceil_div<std::int64_t>(a.l.T, S::kTile);
    constexpr int kFloats = 4 * S::kTileFloats + S::kScoreFloats;
    launch(stream, key_value_kernel<S, T>, a, Grid{kOp, qkv, tiles, a.l.NKV}, kFloats);
    launch(stream, query_kernel<S, T>, a, Grid{kOp, qkv, tiles, a.l.NH}, kFloats);
}

}  // namespace
}  // namespace general_attention

void general_attention_backward(Stream stream, const AttentionBackward& args) {
    using namespace general_attention;
    dispatch_float(args.qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t B = args.qkv.dim(0);
        const Layout l = layout_of(args);
        const BackwardArrays<T> a = {args.dqkv.ptr<T>(),
                                     static_cast<float*>(args.scratch.data),
                                     args.dout.ptr<T>(),
                                     args.out.ptr<T>(),
                                     args.lse.ptr<float>(),
                                     args.qkv.ptr<T>(),
                                     l,
                                     B * l.T * l.NH};
        const unsigned dot_blocks =
            grid_blocks(kOp, args.qkv, ceil_div<std::int64_t>(a.num_rows, kThreads / 32));
        dots_kernel<T><<<dot_blocks, kThreads, 0, native(stream)>>>(a);
        if (l.HS <= 64) {
            launch_backward<Shape<64, 64>>(stream, a, args.qkv);
        } else if (l.HS <= 128) {
            launch_backward<Shape<128, 32>>(stream, a, args.qkv);
        } else {
            launch_backward<Shape<256, 16>>(stream, a, args.qkv);
        }
    });
    check_launch(kOp, args.qkv);
}

}  // namespace ingot::cuda
