// Goal: recomputation saves what it says, scratch is shared by lifetime, limits are refused.
#include <doctest/doctest.h>

#include "model/activation_plan.h"

using namespace ingot;

namespace {

ActivationPlan plan_of(Recompute recompute, bool with_backward = true) {
    ActivationOptions options;
    options.B = 4;
    options.T = 128;
    options.recompute = recompute;
    options.with_backward = with_backward;
    return plan_activations(preset("gpt2-tiny"), options);
}

}  // namespace

TEST_CASE("activation plan: bytes saved per block are those of the table in the header") {
    const std::int64_t N = 4 * 128;
    const std::int64_t C = 128;
    const std::int64_t L = 4;
    const std::int64_t row = N * C * 4;
    const std::int64_t none = plan_of(Recompute::none).saved.size_bytes();
    const std::int64_t light = plan_of(Recompute::light).saved.size_bytes();
    const std::int64_t block = plan_of(Recompute::block).saved.size_bytes();
    CHECK(none - light == L * 6 * row);  // ln1, ln2 and the 4 C of fch_gelu
    // qkv 3, atty 1, residual2 1, fch 4; four statistics and 4 heads' lse.
    CHECK(light - block == L * (9 * row + (4 + 4) * N * 4));
}

TEST_CASE("activation plan: scratch is smaller than the sum of its regions") {
    for (const Recompute recompute : {Recompute::none, Recompute::light, Recompute::block}) {
        const ActivationPlan plan = plan_of(recompute);
        std::int64_t sum = 0;
        for (const auto& region : plan.scratch.regions())
            sum += region.shape.size_bytes();
        CHECK(plan.scratch.size_bytes() < sum);
    }
    CHECK(plan_of(Recompute::none, false).scratch.size_bytes() <
          plan_of(Recompute::none, true).scratch.size_bytes());
}

TEST_CASE("activation plan: too long a sequence and unknown words are refused") {
    ActivationOptions options;
    options.B = 1;
    options.T = 257;
    CHECK_THROWS_WITH_AS(plan_activations(preset("gpt2-tiny"), options),
                         "sequence length 257 is above the model's context_length = 256", Error);
    options.T = 0;
    CHECK_THROWS_WITH_AS(plan_activations(preset("gpt2-tiny"), options),
                         doctest::Contains("T = 0; both must be above 0"), Error);
    CHECK_THROWS_WITH_AS(recompute_from_name("full"),
                         "model.recompute = full; use none, light or block", Error);
    CHECK(recompute_from_name("light") == Recompute::light);
}

TEST_CASE(
    "activation plan: a logits chunk is within its budget and never has more rows than the batch") {
    ActivationOptions options;
    options.B = 2;
    options.T = 8;
    CHECK(default_logits_rows(preset("gpt2-tiny"), options) == 16);
    options.B = 64;
    options.T = 256;
    CHECK(default_logits_rows(preset("gpt2-124m"), options) == (16 << 20) / (50304 * 4));
    options.device = Device::cuda;
    options.dtype = DType::bf16;
    CHECK(default_logits_rows(preset("gpt2-124m"), options) == 4096);  // of 5336 in 512 MiB
    options.dtype = DType::f32;
    CHECK(default_logits_rows(preset("gpt2-124m"), options) == 2048);
    options.B = 1;
    CHECK(default_logits_rows(preset("gpt2-124m"), options) == 256);
}
