// Positions in order of (id, position), by counting: integer atomics give each position a slot in
// its id's list, and the list is then ordered by comparing its entries, so the atomics' order
// leaves no trace.
#pragma once

#include "kernels/device/embedding_grid.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/reduce.cuh"

namespace ingot::cuda {

inline constexpr int kOrderThreads = 256;
inline constexpr int kScanIds = 1024;  // ids that one block of the scan covers
inline constexpr int kScanUnroll = 8;  // groups of four counts that a thread has in flight

static __global__ void __launch_bounds__(kOrderThreads)
    count_ids_kernel(const EmbeddingScratch s, const int* __restrict__ ids, int N) {
    const int i = static_cast<int>(blockIdx.x) * kOrderThreads + static_cast<int>(threadIdx.x);
    if (i < N) s.slots[i] = atomicAdd(&s.counts[ids[i]], 1);
}

// starts = exclusive sum of counts. Each block first adds all counts before its own ids.
static __global__ void __launch_bounds__(kScanIds)
    scan_counts_kernel(const EmbeddingScratch s, int Vp) {
    __shared__ int shared[2][kScanIds / 32];
    const int first = static_cast<int>(blockIdx.x) * kScanIds;
    const int thread = static_cast<int>(threadIdx.x);
    const int4* counts = reinterpret_cast<const int4*>(s.counts);
    int before = 0;
    for (int v = thread; v < first / 4; v += kScanIds * kScanUnroll) {
        int4 four[kScanUnroll];
#pragma unroll
        for (int u = 0; u < kScanUnroll; ++u) {
            const int at = v + u * kScanIds;
            four[u] = at < first / 4 ? counts[at] : make_int4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < kScanUnroll; ++u)
            before += four[u].x + four[u].y + four[u].z + four[u].w;
    }
    before = block_sum<kScanIds / 32>(before, shared[0]);
    const int count = first + thread < Vp ? s.counts[first + thread] : 0;
    int inclusive = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(kFullWarp, inclusive, offset);
        if (thread % 32 >= offset) inclusive += other;
    }
    if (thread % 32 == 31) shared[1][thread / 32] = inclusive;
    __syncthreads();
    for (int w = 0; w < thread / 32; ++w)
        before += shared[1][w];
    if (first + thread < Vp) s.starts[first + thread] = before + inclusive - count;
}

static __global__ void __launch_bounds__(kOrderThreads)
    place_positions_kernel(const EmbeddingScratch s, const int* __restrict__ ids, int N) {
    const int i = static_cast<int>(blockIdx.x) * kOrderThreads + static_cast<int>(threadIdx.x);
    if (i < N) s.list[s.starts[ids[i]] + s.slots[i]] = i;
}

// An entry's place is the number of smaller positions in its id's list.
static __global__ void __launch_bounds__(kOrderThreads)
    order_positions_kernel(const EmbeddingScratch s, const int* __restrict__ ids, int N) {
    const int e = static_cast<int>(blockIdx.x) * kOrderThreads + static_cast<int>(threadIdx.x);
    if (e >= N) return;
    const int position = s.list[e];
    const int id = ids[position];
    const int start = s.starts[id];
    const int count = s.counts[id];
    int rank = 0;
    for (int k = 0; k < count; ++k)
        rank += s.list[start + k] < position ? 1 : 0;
    s.ordered[start + rank] = position;
}

// Fills s.counts, s.starts and s.ordered.
inline void order_positions(
    cudaStream_t stream, const EmbeddingScratch& s, const int* ids, int N, int Vp) {
    const auto blocks = static_cast<unsigned>(ceil_div(N, kOrderThreads));
    const auto scan_blocks = static_cast<unsigned>(ceil_div(Vp, kScanIds));
    CUDA_CHECK(cudaMemsetAsync(s.counts, 0, static_cast<std::size_t>(Vp) * sizeof(int), stream));
    count_ids_kernel<<<blocks, kOrderThreads, 0, stream>>>(s, ids, N);
    scan_counts_kernel<<<scan_blocks, kScanIds, 0, stream>>>(s, Vp);
    place_positions_kernel<<<blocks, kOrderThreads, 0, stream>>>(s, ids, N);
    order_positions_kernel<<<blocks, kOrderThreads, 0, stream>>>(s, ids, N);
}

}  // namespace ingot::cuda
