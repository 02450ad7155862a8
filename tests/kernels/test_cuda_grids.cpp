// Goal: what host code says of CUDA kernels - sizes of scratch, and which block does what - is
// right in every build, with and without CUDA. Method: sizes worked out by hand from the shapes;
// the map from blocks to work covers everything once, in the promised order.
#include <set>
#include <tuple>

#include <doctest/doctest.h>

#include "kernels/attention.h"
#include "kernels/bias_gradient.h"
#include "kernels/device/embedding_grid.h"
#include "kernels/embedding.h"
#include "kernels/global_norm.h"
#include "kernels/layernorm.h"

using namespace ingot;

TEST_CASE("cuda grids: scratch of the ops of GPT-2 124M, from the shape alone") {
    constexpr Device cuda = Device::cuda;
    constexpr std::int64_t N = 65536;
    // 22 chunks of rows for each of 12 groups of 256 columns; few rows make few chunks.
    CHECK(bias_gradient_scratch_bytes(cuda, N, 3072) == 22 * 3072 * 4);
    CHECK(bias_gradient_scratch_bytes(cuda, N, 768) == 88 * 768 * 4);
    CHECK(bias_gradient_scratch_bytes(cuda, 129, 768) == 3 * 768 * 4);
    CHECK(bias_gradient_scratch_bytes(cuda, 0, 768) == 768 * 4);
    // Blocks of 96 threads, five for each of 132 multiprocessors; sums for weight and bias.
    CHECK(layernorm_backward_scratch_bytes(cuda, N, 768) == 660 * 2 * 768 * 4);
    CHECK(layernorm_backward_scratch_bytes(cuda, 1, 8) == 2 * 8 * 4);
    CHECK(squared_norm_scratch_bytes(cuda, 124'475'904) == 528 * 4);
    CHECK(squared_norm_scratch_bytes(cuda, 16385) == 2 * 4);
    // A flag for each chunk of 16 and 32 columns, the count of blocks, and a partial sum for each
    // chunk.
    CHECK(embedding_backward_scratch_bytes(cuda, N, 768) == 4096 * 24 * 4 + 256 + 4096 * 768 * 4);
    // Row sums of the general path; flags, statistics, and rings of dQ and of dK, dV for flash.
    CHECK(attention_backward_scratch_bytes(cuda, {64, 1024, 12, 12, 64, DType::f32}) ==
          64 * 12 * 1024 * 4);
    CHECK(attention_backward_scratch_bytes(cuda, {64, 1024, 12, 12, 64, DType::bf16}) ==
          4352 + 768 * 1024 * 8 + 64 * 1024 * 64 * 4);
}

TEST_CASE(
    "cuda grids: embedding_backward visits each row of dwpe and each chunk once, slice by slice") {
    for (const auto& [N, C, max_T, width] :
         {std::tuple{65536, 768, 1024, 4}, {33, 130, 0, 1}, {1, 1, 1, 1}, {256, 128, 9, 4}}) {
        const cuda::EmbeddingGrid grid = cuda::embedding_grid(N, C, max_T, width);
        CHECK(grid.slices * 32 * width >= C);
        CHECK((grid.slices - 1) * 32 * width < C);
        std::set<std::tuple<int, bool, int>> seen;
        std::pair<int, bool> last{0, true};  // slice, is_position
        int positions = 0;
        int chunks = 0;
        for (int block = 0; block < grid.num_blocks(); ++block) {
            for (int warp = 0; warp < cuda::kEmbeddingWarps; ++warp) {
                cuda::EmbeddingWork work = grid.work(block);
                work.item = work.item * cuda::kEmbeddingWarps + warp;
                CHECK(seen.insert({work.slice, work.is_position, work.item}).second);
                const std::pair<int, bool> now{work.slice, work.is_position};
                CHECK((now == last || now.first > last.first || !now.second));
                last = now;
                if (work.slice != grid.slices - 1) continue;
                positions += work.is_position && work.item < max_T ? 1 : 0;
                chunks += !work.is_position && work.item * 16 < N ? 1 : 0;
            }
        }
        CHECK(last.first == grid.slices - 1);
        CHECK(positions == max_T);
        CHECK(chunks == (N + 15) / 16);
    }
}
