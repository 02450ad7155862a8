// Goal: the flash attention path is the attention of kernels/attention.h for every T, grouping of
// heads and amount of shared memory, and gives the same bits every time. Method: comparison with
// the CPU in fp32 on the same rounded inputs, by norm, a part of dqkv at a time; poisoned outputs
// and scratch; guard bytes; shapes around the tile sizes, one of them with more heads than the ring
// of sums has places; shared memory of three generations of cards. Only machines with a GPU run it.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/attention_flash.h"
#include "tests/support/attention_tensors.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Shape = AttentionSize;

// Bytes of shared memory a block: what the card has, sm_80, sm_86 and sm_89.
const int kLimits[] = {0, 163 * 1024, 99 * 1024};

struct Result {
    std::vector<std::uint8_t> out, lse, dqkv;
    bool operator==(const Result& other) const {
        return out == other.out && lse == other.lse && dqkv == other.dqkv;
    }
};

// Rounded inputs, so that the CPU sees the same in fp32.
AttentionInputs rounded_inputs(const Shape& s) {
    const AttentionInputs inputs = attention_inputs(s, 2.5F);
    return {rounded(inputs.qkv, DType::bf16), rounded(inputs.dout, DType::bf16)};
}

struct Fixture : AttentionTensors {
    Fixture(Context& context, DType dtype, const Shape& s, std::int64_t scratch_bytes)
        : AttentionTensors(context, dtype, s, rounded_inputs(s), scratch_bytes) {}

    // Forward and backward from poisoned outputs.
    Result run_flash(Stream stream, int limit) {
        for (TestTensor* tensor : {&out, &lse, &dqkv, &scratch})
            tensor->poison();
        cuda::flash_attention_forward(stream, forward(), limit);
        cuda::flash_attention_backward(stream, backward(), limit);
        scratch.bytes();  // checks the guards
        return {out.bytes(), lse.bytes(), dqkv.bytes()};
    }
};

Fixture on_gpu(Context& context, Shape s) {
    return {context, DType::bf16, s,
            cuda::flash_attention_backward_scratch_bytes(s.attention(DType::bf16))};
}

// dq, dk or dv out of dqkv.
std::vector<float> part(const std::vector<float>& dqkv, Shape s, int which) {
    const std::int64_t ends[] = {0, s.C(), s.C() + std::int64_t{s.NKV} * s.HS, s.row()};
    std::vector<float> values;
    for (std::int64_t row = 0; row < s.B * s.T; ++row) {
        values.insert(values.end(), dqkv.begin() + row * s.row() + ends[which],
                      dqkv.begin() + row * s.row() + ends[which + 1]);
    }
    return values;
}

void check_against_cpu(const Fixture& gpu, const Fixture& cpu) {
    // P, dS and the results are rounded to bf16, each by at most 2^-9 of its value.
    CHECK(relative_error(gpu.out.values(), to_double(cpu.out.values())) < 4e-3);
    CHECK(difference(gpu.lse.values(), to_double(cpu.lse.values()), {1e-5, 1e-5}) == "");
    const std::vector<float> got = gpu.dqkv.values();
    const std::vector<float> wanted = cpu.dqkv.values();
    for (int which = 0; which < 3; ++which) {
        INFO("part ", which, " of dq, dk, dv");
        const std::vector<double> expected = to_double(part(wanted, gpu.shape, which));
        if (gpu.shape.T == 1 && which < 2) {  // one key: P = 1 whatever q and k are
            CHECK(difference(part(got, gpu.shape, which), expected, {0.1, 0.0}) == "");
        } else {
            CHECK(relative_error(part(got, gpu.shape, which), expected) < 8e-3);
        }
    }
}

void check_shape(Context& cpu_context, Context& gpu_context, Shape s) {
    if (is_left_out(s.work(), 6 << 20)) return;
    Fixture cpu(cpu_context, DType::f32, s, 0);
    attention_forward(cpu_context.compute_stream(), cpu.forward());
    attention_backward(cpu_context.compute_stream(), cpu.backward());
    Fixture gpu = on_gpu(gpu_context, s);
    for (const int limit : kLimits) {
        INFO("B", s.B, " T", s.T, " NH", s.NH, " NKV", s.NKV, " HS", s.HS, ", shared memory limit ",
             limit);
        const Result first = gpu.run_flash(gpu_context.compute_stream(), limit);
        check_against_cpu(gpu, cpu);
        CHECK(gpu.run_flash(gpu_context.compute_stream(), limit) == first);
    }
}

}  // namespace

TEST_CASE(
    "flash attention: agrees with the CPU for any T and grouping of heads, bit for bit again") {
    if (!has_gpu()) return;
    const auto cpu = Context::make_cpu();
    const auto gpu = Context::make_cuda(0);
    for (const int HS : {64, 128}) {
        for (const std::int64_t T : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129})
            check_shape(*cpu, *gpu, {2, T, 4, 2, HS});
        for (const std::int64_t T : {1000, 1024})
            check_shape(*cpu, *gpu, {1, T, 2, 1, HS});
        check_shape(*cpu, *gpu, {1, 200, 1, 1, HS});
        check_shape(*cpu, *gpu, {2, 200, 8, 1, HS});
        check_shape(*cpu, *gpu, {1, 200, 14, 2, HS});
    }
}

// Small enough for a checker that follows every access to shared memory.
TEST_CASE("flash attention: whole tiles and a part of one agree with the CPU") {
    if (!has_gpu()) return;
    const auto cpu = Context::make_cpu();
    const auto gpu = Context::make_cuda(0);
    for (const int HS : {64, 128})
        check_shape(*cpu, *gpu, {1, 150, 2, 1, HS});
}

TEST_CASE("flash attention: more heads than places for their sums, and several heads a block") {
    if (!has_gpu()) return;
    const auto cpu = Context::make_cpu();
    const auto gpu = Context::make_cuda(0);
    check_shape(*cpu, *gpu, {40, 192, 14, 2, 64});
    check_shape(*cpu, *gpu, {400, 130, 8, 2, 64});
    check_shape(*cpu, *gpu, {100, 136, 8, 2, 128});
}

TEST_CASE("flash attention: a row whose scores differ by hundreds keeps its largest") {
    if (!has_gpu()) return;
    const auto cpu = Context::make_cpu();
    const auto gpu = Context::make_cuda(0);
    const Shape s{1, 300, 2, 1, 64};
    Fixture reference(*cpu, DType::f32, s, 0);
    Fixture flash = on_gpu(*gpu, s);
    std::vector<float> values = random_values("wide", s.T * s.row(), -12.0F, 12.0F);
    reference.qkv.set(rounded(values, DType::bf16));
    flash.qkv.set(values);
    attention_forward(cpu->compute_stream(), reference.forward());
    cuda::flash_attention_forward(gpu->compute_stream(), flash.forward());
    CHECK(relative_error(flash.out.values(), to_double(reference.out.values())) < 4e-3);
    CHECK(difference(flash.lse.values(), to_double(reference.lse.values()), {1e-4, 1e-5}) == "");
}

TEST_CASE("flash attention: covers bf16 with head sizes 64 and 128, and says what it does not") {
    if (!has_gpu()) return;
    const AttentionShape shape{1, 8, 2, 1, 64, DType::bf16};
    CHECK(cuda::flash_attention_supports(shape));
    AttentionShape other = shape;
    other.head_size = 96;
    CHECK_FALSE(cuda::flash_attention_supports(other));
    other = shape;
    other.dtype = DType::f32;
    CHECK_FALSE(cuda::flash_attention_supports(other));

    const auto gpu = Context::make_cuda(0);
    const Stream stream = gpu->compute_stream();
    Fixture f = on_gpu(*gpu, {1, 8, 2, 1, 64});
    AttentionForward args = f.forward();
    args.scale = -1.0F;
    CHECK_THROWS_WITH_AS(cuda::flash_attention_forward(stream, args),
                         doctest::Contains("scale = -1, must be above 0"), Error);
    CHECK_THROWS_WITH_AS(cuda::flash_attention_forward(stream, f.forward(), 48 * 1024 - 1),
                         doctest::Contains("are needed, 49151 are available"), Error);
    CHECK_THROWS_WITH_AS(cuda::flash_attention_backward(stream, f.backward(), 48 * 1024),
                         doctest::Contains("are needed, 49152 are available"), Error);
    const Fixture narrow(*gpu, DType::bf16, {1, 8, 2, 1, 32}, 0);
    CHECK_THROWS_WITH_AS(cuda::flash_attention_forward(stream, narrow.forward()),
                         doctest::Contains("not bf16 and 32; use the general path"), Error);
}
