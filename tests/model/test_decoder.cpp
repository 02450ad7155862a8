// Goal: the Decoder's gradients are those of its loss, whatever the recomputation, the split into
// micro-batches, the order of streams and the hooks do. Method: finite differences, bit
// comparisons, hooks that poison parameters outside their use. The float64 comparison is
// tests/train/test_golden.
#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "engine/core/token_order.h"
#include "kernels/cross_entropy.h"
#include "model/decoder.h"
#include "tests/support/checked_hooks.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

DecoderConfig small_model() {
    DecoderConfig config;
    config.vocab_size = 37;
    config.context_length = 12;
    config.num_layers = 2;
    config.num_heads = 2;
    config.num_kv_heads = 2;
    config.channels = 16;
    config.head_size = 8;
    config.ffn_channels = 24;
    config.init_std = 0.3F;  // far from linear, so that every term of the gradient matters
    return config;
}

constexpr std::int64_t kB = 3;
constexpr std::int64_t kT = 10;

// A model with its parameters, gradients and one batch.
struct Run {
    explicit Run(Context& c, Recompute recompute = Recompute::none, std::int64_t planned_rows = kB)
        : context(c),
          decoder(c, small_model(), options(c, recompute, planned_rows)),
          store(c, decoder.params(), {.params = DType::f32, .grads = DType::f32}),
          ids(random_ids("inputs", kB * kT, 37)),
          inputs(c, {kB, kT}, ids),
          targets(c, {kB, kT}, masked(random_ids("targets", kB * kT, 37))) {
        store.initialize(5);
    }

    static ActivationOptions options(Context& c, Recompute recompute, std::int64_t planned_rows) {
        ActivationOptions options;
        options.B = planned_rows;
        options.T = kT;
        options.recompute = recompute;
        options.device = c.device();
        options.logits_rows = 7;  // does not divide the rows
        return options;
    }

    static std::vector<std::int32_t> masked(std::vector<std::int32_t> ids) {
        ids[4] = kMaskedTarget;
        ids[17] = kMaskedTarget;
        return ids;
    }

    // Gradients of all groups, one after the other.
    std::vector<float> gradients(GroupHooks& hooks, std::int64_t rows = kB) {
        const Stream stream = context.compute_stream();
        for (std::int64_t b = 0; b < kB; b += rows) {
            store.begin_micro_step(b / rows);
            const Tensor batch = inputs.tensor().slice(b, b + rows);
            decoder.forward(stream, hooks, batch);
            const TestTensor order(
                context, {rows * kT, 2},
                token_order({ids.begin() + b * kT, ids.begin() + (b + rows) * kT}));
            decoder.loss_and_backward(stream, hooks, order, targets.tensor().slice(b, b + rows));
            stream.synchronize();  // before the order goes
        }
        std::vector<float> all;
        for (int g = 0; g < store.num_groups(); ++g) {
            std::vector<float> group(static_cast<std::size_t>(store.grads(g).numel()));
            read_floats(context, store.grads(g), group.data());
            all.insert(all.end(), group.begin(), group.end());
        }
        return all;
    }

    double loss() {
        const Stream stream = context.compute_stream();
        decoder.forward(stream, store, inputs);
        const Tensor losses = decoder.loss(stream, store, targets);
        std::vector<float> values(static_cast<std::size_t>(losses.numel()));
        read_floats(context, losses, values.data());
        double total = 0.0;
        for (const float value : values)
            total += value;
        return total;
    }

    Context& context;
    Decoder decoder;
    ParamStore store;
    std::vector<std::int32_t> ids;
    TestTensor inputs, targets;
};

}  // namespace

TEST_CASE("Decoder: the gradient of every tensor agrees with finite differences") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Run run(*context);
        run.gradients(run.store);
        for (const ParamSpec& spec : run.decoder.params().params) {
            CAPTURE(spec.name);
            std::vector<float> gradient(static_cast<std::size_t>(spec.numel()));
            const Tensor flat = run.store.grads(spec.group);
            read_floats(*context, flat.slice(spec.offset, spec.offset + spec.numel()),
                        gradient.data());
            // The steepest element, where rounding matters least.
            const auto steepest =
                std::max_element(gradient.begin(), gradient.end(),
                                 [](float a, float b) { return std::fabs(a) < std::fabs(b); });
            const std::int64_t index = steepest - gradient.begin();
            constexpr float kStep = 5e-3F;
            float value = 0.0F;
            run.store.read(spec, index, 1, &value);
            const auto loss_at = [&](float at) {
                run.store.write(spec, index, 1, &at);
                return run.loss();
            };
            const double up = loss_at(value + kStep);
            const double down = loss_at(value - kStep);
            loss_at(value);
            CHECK(*steepest == doctest::Approx((up - down) / (2.0 * kStep)).epsilon(0.02));
        }
    }
}

TEST_CASE("Decoder: recomputation changes no bit of the gradients in fp32") {
    const auto context = Context::make_cpu();
    Run none(*context, Recompute::none);
    Run light(*context, Recompute::light);
    Run block(*context, Recompute::block);
    const std::vector<float> expected = none.gradients(none.store);
    CHECK(light.gradients(light.store) == expected);
    CHECK(block.gradients(block.store) == expected);
}

TEST_CASE("Decoder: gradients of micro-batches add up to those of the whole batch") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Run whole(*context);
        Run split(*context);
        const std::vector<double> expected = to_double(whole.gradients(whole.store));
        const std::vector<float> actual = split.gradients(split.store, 1);
        CHECK(relative_error(actual, expected) < 1e-6);
    }
}

TEST_CASE("Decoder: parameters are read only between the hooks, in the documented order") {
    const auto context = Context::make_cpu();
    Run plain(*context);
    const std::vector<float> expected = plain.gradients(plain.store);
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        Run run(*context, recompute);
        CheckedHooks hooks(*context, run.store);
        CHECK(run.gradients(hooks) == expected);
        const std::vector<std::string> order = {
            "before_forward 0",      "after_forward 0",       "before_forward 1",
            "after_forward 1",       "before_forward 2",      "after_forward 2",
            "before_forward 3",      "after_forward 3",       "before_backward 0",
            "after_backward 0",      "before_backward 3",     "after_backward 3 last",
            "before_backward 2",     "after_backward 2 last", "before_backward 1",
            "after_backward 1 last", "before_backward 0",     "after_backward 0 last"};
        CHECK(hooks.calls() == order);
    }
}

TEST_CASE("Decoder: adversarial streams give the bits of immediate ones") {
    const auto immediate = Context::make_cpu();
    Run plain(*immediate);
    const std::vector<float> expected = plain.gradients(plain.store);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = seed});
        Run run(*context, Recompute::block);
        CheckedHooks hooks(*context, run.store);
        CHECK(run.gradients(hooks) == expected);
    }
}

TEST_CASE("Decoder: a batch smaller than planned gives the same bits") {
    const auto context = Context::make_cpu();
    Run exact(*context, Recompute::block);
    Run roomy(*context, Recompute::block, 5);
    CHECK(roomy.gradients(roomy.store) == exact.gradients(exact.store));
}

TEST_CASE("Decoder: padded vocabulary rows get a zero gradient") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Run run(*context);
        run.gradients(run.store);
        const ParamSpec& wte = run.decoder.params().find("wte");
        std::vector<float> gradient(static_cast<std::size_t>(wte.numel()));
        read_floats(*context, run.store.grads(0).slice(wte.offset, wte.offset + wte.numel()),
                    gradient.data());
        CHECK(std::all_of(gradient.begin() + wte.stored_numel(), gradient.end(),
                          [](float g) { return g == 0.0F; }));
    }
}

TEST_CASE("Decoder: a logit depends on no later token") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Run run(*context);
        const Stream stream = context->compute_stream();
        const std::vector<std::int32_t> ids = random_ids("causal", kT, 37);
        const auto logits_of_row_6 = [&](std::int32_t last) {
            std::vector<std::int32_t> changed = ids;
            for (std::size_t i = 7; i < changed.size(); ++i)
                changed[i] = last;
            const TestTensor inputs(*context, {1, kT}, changed);
            run.decoder.forward(stream, run.store, inputs);
            const Tensor row = run.decoder.logits(stream, run.store, 6, 1);
            std::vector<float> values(static_cast<std::size_t>(row.numel()));
            read_floats(*context, row, values.data());
            return values;
        };
        CHECK(logits_of_row_6(3) == logits_of_row_6(29));
    }
}

TEST_CASE("Decoder: batches beyond the plan and backward without a plan are refused") {
    const auto context = Context::make_cpu();
    Run run(*context);
    const Stream stream = context->compute_stream();
    const TestTensor wide(*context, {1, 11}, random_ids("wide", 11, 37));
    CHECK_THROWS_WITH_AS(run.decoder.forward(stream, run.store, wide),
                         "Decoder: batch of 1 x 11 tokens, planned for at most 3 x 10", Error);
    const TestTensor tall(*context, {4, 10}, random_ids("tall", 40, 37));
    CHECK_THROWS_WITH_AS(run.decoder.forward(stream, run.store, tall),
                         doctest::Contains("batch of 4 x 10 tokens"), Error);
    run.decoder.forward(stream, run.store, run.inputs);
    CHECK_THROWS_WITH_AS(run.decoder.logits(stream, run.store, 0, 8),
                         "Decoder: logits of 8 rows, planned for at most 7", Error);

    ActivationOptions options = Run::options(*context, Recompute::none, kB);
    options.with_backward = false;
    Decoder evaluation(*context, small_model(), options);
    evaluation.forward(stream, run.store, run.inputs);
    CHECK_THROWS_WITH_AS(evaluation.loss_and_backward(stream, run.store, run.inputs, run.targets),
                         doctest::Contains("planned for evaluation only"), Error);
}
