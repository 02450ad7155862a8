// The inner loop of small dense products on the CPU, written so that the compiler keeps the sums in
// vector registers. For blocks that fit into the first cache levels; large products go through BLAS
// (kernels/blas.h).
//
//   out[r][c] (+)= sum over terms k of left(r, k) * right[k][c]
//
// Each sum runs over k in order, so results do not depend on threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ingot::cpu_tile {

// 4 x 16 sums are 8 of the 16 vector registers of AVX2.
inline constexpr std::int64_t kRows = 4;
inline constexpr std::int64_t kColumns = 16;

struct Product {
    float* out;               // (num_rows, num_columns)
    std::int64_t out_stride;  // elements from row to row
    const float* left;        // element (r, k) at r * left_row_stride + k * left_term_stride
    std::int64_t left_row_stride, left_term_stride;
    const float* right;         // (num_terms, num_columns)
    std::int64_t right_stride;  // elements from row to row
    std::int64_t num_rows;      // 1 to kRows
    std::int64_t num_columns;   // a multiple of 8
    std::int64_t num_terms;     // any; 0 or less adds nothing
    bool accumulate;
};

template <int kTileRows, int kTileColumns>
inline void multiply_tile(const Product& p, std::int64_t column) {
    float sums[kTileRows][kTileColumns];
    for (int r = 0; r < kTileRows; ++r) {
        for (int c = 0; c < kTileColumns; ++c)
            sums[r][c] = p.accumulate ? p.out[r * p.out_stride + column + c] : 0.0F;
    }
    const float* left = p.left;
    const float* right = p.right + column;
    for (std::int64_t k = 0; k < p.num_terms; ++k) {
        for (int r = 0; r < kTileRows; ++r) {
            const float factor = left[r * p.left_row_stride];
#pragma omp simd
            for (int c = 0; c < kTileColumns; ++c)
                sums[r][c] += factor * right[c];
        }
        left += p.left_term_stride;
        right += p.right_stride;
    }
    for (int r = 0; r < kTileRows; ++r) {
        for (int c = 0; c < kTileColumns; ++c)
            p.out[r * p.out_stride + column + c] = sums[r][c];
    }
}

template <int kTileRows>
inline void multiply_rows(const Product& p) {
    std::int64_t column = 0;
    for (; column + kColumns <= p.num_columns; column += kColumns)
        multiply_tile<kTileRows, kColumns>(p, column);
    for (; column < p.num_columns; column += 8)
        multiply_tile<kTileRows, 8>(p, column);
}

inline void multiply(const Product& p) {
    switch (p.num_rows) {
        case 1:
            return multiply_rows<1>(p);
        case 2:
            return multiply_rows<2>(p);
        case 3:
            return multiply_rows<3>(p);
        default:
            return multiply_rows<4>(p);
    }
}

}  // namespace ingot::cpu_tile
