// Goal: a CUDA call that is refused names the op, the tensor's shape, the call and the fix, and the
// next call knows nothing of it. Method: calls that CUDA refuses before it runs anything, and grids
// that no launch can have. Only a GPU refuses.
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "kernels/attention.h"
#include "tests/kernels/refused_launch.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Refusal {
    std::string code, message;
};

Refusal refusal_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    return {"none", ""};
}

// The words between `call` and the fix are CUDA's own, and which error it is differs by driver.
void check_refusal(const Refusal& refusal, const char* code, const char* call) {
    CAPTURE(refusal.message);
    CHECK(refusal.code == code);
    CHECK(refusal.message.rfind(std::string("refused on (3, 5) bf16: ") + call, 0) == 0);
    CHECK(refusal.message.find(": cudaError") != std::string::npos);
    CHECK(refusal.message.find("; CUDA refuses these arguments: a smaller train.micro_batch") !=
          std::string::npos);
}

}  // namespace

TEST_CASE("launch: a refused call names op, shape, call and fix, and the next launch runs") {
    if (!has_gpu()) return;
    const auto context = make_context(Device::cuda);
    const Stream stream = context->compute_stream();
    const TensorShape shape = TestTensor(*context, DType::bf16, {3, 5}).tensor();
    const TestTensor value(*context, DType::f32, {1}, std::vector<float>{0.0F});

    check_refusal(refusal_of([&] { launch_with_too_many_threads(stream, shape); }), "cuda.launch",
                  "kernel launch");
    launch_allowed(stream, value);
    check_refusal(refusal_of([&] { launch_dependent_with_too_many_threads(stream, shape); }),
                  "cuda.launch", "cudaLaunchKernelEx");
    launch_allowed(stream, value);
    check_refusal(refusal_of([&] { ask_for_too_much_shared_memory(shape); }), "cuda.call",
                  "cudaFuncSetAttribute(");
    launch_allowed(stream, value);
    CHECK(value.values() == std::vector<float>{3.0F});
}

TEST_CASE("launch: more heads than a grid has rows of blocks are refused with both numbers") {
    if (!has_gpu()) return;
    const auto context = make_context(Device::cuda);
    constexpr int kHeads = 65536;
    constexpr int kHeadSize = 8;
    const TestTensor qkv(*context, DType::f32, {1, 1, (kHeads + 2) * kHeadSize});
    const TestTensor out(*context, DType::f32, {1, 1, kHeads * kHeadSize});
    const TestTensor lse(*context, DType::f32, {1, kHeads, 1});
    const Refusal refusal = refusal_of([&] {
        attention_forward(context->compute_stream(), {.out = out,
                                                      .lse = lse,
                                                      .qkv = qkv,
                                                      .num_heads = kHeads,
                                                      .num_kv_heads = 1,
                                                      .scale = 1.0F,
                                                      .method = AttentionMethod::general});
    });
    CHECK(refusal.code == "cuda.grid");
    CHECK(refusal.message ==
          "attention_forward on (1, 1, 524304) f32 has 65536 heads, a grid has at most 65535; use "
          "fewer heads");
}
