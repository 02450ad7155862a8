// Goal: a step is AdamW on the clipped mean gradient, decay on matrices only, nothing at all when
// something is not finite. Method: float64 loops; B52 with zero gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "engine/train/optimizer.h"
#include "kernels/cast.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

DecoderConfig small_model() {
    DecoderConfig config = preset("gpt2-tiny");
    config.vocab_size = 100;
    config.context_length = 8;
    config.num_layers = 1;
    config.channels = 32;
    config.head_size = 8;
    config.ffn_channels = 40;
    return config;
}

struct Fixture {
    explicit Fixture(Context& c, OptimizerOptions options = {}, DType params = DType::f32)
        : context(c),
          table(make_gpt2_param_table(small_model())),
          store(c, table, {.params = params, .grads = DType::f32}),
          optimizer(c, store, options) {
        store.initialize(11);
        set_loss(1.0F);
    }

    void set_loss(float value) {
        fill(context.compute_stream(), {.out = optimizer.loss_sum(), .value = value});
    }
    // Random gradients where tensors are, zero between them, as the Decoder leaves them.
    void set_gradients(float scale) {
        for (const ParamSpec& spec : table.params) {
            const std::vector<float> values =
                random_values("gradient of " + spec.name, spec.numel(), -scale, scale);
            write_floats(context, gradient(spec), values.data());
        }
    }
    Tensor gradient(const ParamSpec& spec) const {
        return store.grads(spec.group).slice(spec.offset, spec.offset + spec.numel());
    }
    std::vector<float> read(Tensor tensor) const {
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        read_floats(context, tensor, values.data());
        return values;
    }
    std::vector<float> parameter(const ParamSpec& spec) const {
        std::vector<float> values(static_cast<std::size_t>(spec.numel()));
        store.read(spec, 0, spec.numel(), values.data());
        return values;
    }

    Context& context;
    ParamTable table;
    ParamStore store;
    Optimizer optimizer;
};

}  // namespace

TEST_CASE("optimizer: three steps agree with float64 AdamW, clipped and not") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const double grad_clip : {0.0, 0.5, 1e9}) {
            CAPTURE(grad_clip);
            const OptimizerOptions o{.grad_clip = grad_clip};
            Fixture f(*context, o);
            f.set_gradients(8.0F);
            constexpr std::int64_t kTokens = 16;
            constexpr double kLr = 1e-2;
            double squares = 0.0;
            for (const ParamSpec& spec : f.table.params) {
                for (const float g : f.read(f.gradient(spec))) {
                    squares += std::pow(static_cast<double>(g) / kTokens, 2);
                }
            }
            const double norm = std::sqrt(squares);
            const double clip = grad_clip > 0.0 && norm > grad_clip ? grad_clip / norm : 1.0;

            std::vector<std::vector<float>> before;
            for (const ParamSpec& spec : f.table.params)
                before.push_back(f.parameter(spec));
            for (std::int64_t step = 1; step <= 3; ++step) {
                f.optimizer.step(context->compute_stream(), step, kLr, kTokens);
                const StepResult result = f.optimizer.result(step);
                CHECK(result.is_finite);
                CHECK(result.grad_norm == doctest::Approx(norm).epsilon(1e-5));
                CHECK(result.loss == doctest::Approx(1.0 / kTokens));
            }
            for (std::size_t p = 0; p < f.table.params.size(); ++p) {
                const ParamSpec& spec = f.table.params[p];
                CAPTURE(spec.name);
                const std::vector<float> gradient = f.read(f.gradient(spec));
                std::vector<double> expected = to_double(before[p]);
                const double decay = spec.shape.size() == 2 ? o.weight_decay : 0.0;
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    const double g = gradient[i] / static_cast<double>(kTokens) * clip;
                    double m = 0.0;
                    double v = 0.0;
                    for (int t = 1; t <= 3; ++t) {
                        m = o.beta1 * m + (1.0 - o.beta1) * g;
                        v = o.beta2 * v + (1.0 - o.beta2) * g * g;
                        const double m_hat = m / (1.0 - std::pow(o.beta1, t));
                        const double v_hat = v / (1.0 - std::pow(o.beta2, t));
                        expected[i] -=
                            kLr * (m_hat / (std::sqrt(v_hat) + o.eps) + decay * expected[i]);
                    }
                }
                CHECK(difference(f.parameter(spec), expected, {2e-5, 1e-5}) == "");
            }
        }
    }
}

TEST_CASE("optimizer: decay touches matrices and embeddings, not norms and biases (B52)") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, {.weight_decay = 0.5});
        const std::vector<float> fcw = f.parameter(f.table.find("h0.fcw"));
        const std::vector<float> wpe = f.parameter(f.table.find("wpe"));
        for (const ParamSpec& spec : f.table.params) {
            if (spec.shape.size() == 2) continue;
            const std::vector<float> values = random_values(spec.name, spec.numel());
            f.store.write(spec, 0, spec.numel(), values.data());
        }
        f.optimizer.step(context->compute_stream(), 1, 0.1, 1);
        for (const ParamSpec& spec : f.table.params) {
            CAPTURE(spec.name);
            if (spec.shape.size() == 2) continue;
            CHECK(f.parameter(spec) == random_values(spec.name, spec.numel()));
        }
        const auto scaled = [](std::vector<float> values) {
            std::vector<double> result;
            for (const float value : values)
                result.push_back(0.95 * value);
            return result;
        };
        CHECK(difference(f.parameter(f.table.find("h0.fcw")), scaled(fcw), {1e-9, 1e-6}) == "");
        CHECK(difference(f.parameter(f.table.find("wpe")), scaled(wpe), {1e-9, 1e-6}) == "");
    }
}

TEST_CASE("optimizer: a gradient or a loss that is not finite changes nothing") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const float bad : {nan, inf}) {
            for (const bool in_loss : {false, true}) {
                Fixture f(*context, {}, DType::bf16);
                f.set_gradients(1.0F);
                const ParamSpec& spec = f.table.find("h0.qkvw");
                if (in_loss) {
                    f.set_loss(bad);
                } else {
                    write_floats(*context, f.gradient(spec).slice(7, 8), &bad);
                }
                const std::vector<float> before = f.parameter(spec);
                f.optimizer.step(context->compute_stream(), 1, 1e-2, 4);
                CHECK_FALSE(f.optimizer.result(1).is_finite);
                CHECK(f.parameter(spec) == before);
                const std::vector<float> m = f.read(f.store.m(1));
                CHECK(std::all_of(m.begin(), m.end(), [](float x) { return x == 0.0F; }));
            }
        }
    }
}

TEST_CASE("optimizer: a skipped step does not count in the bias correction (B59)") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Stream stream = context->compute_stream();
        Fixture plain(*context);
        plain.set_gradients(1.0F);
        plain.optimizer.step(stream, 1, 1e-2, 4);

        Fixture f(*context);
        f.set_gradients(1.0F);
        f.set_loss(std::numeric_limits<float>::quiet_NaN());
        f.optimizer.step(stream, 1, 1e-2, 4);
        CHECK_FALSE(f.optimizer.result(1).is_finite);
        f.optimizer.count_skipped();
        f.set_loss(1.0F);
        f.optimizer.step(stream, 2, 1e-2, 4);
        CHECK(f.optimizer.result(2).is_finite);
        for (const ParamSpec& spec : f.table.params) {
            CAPTURE(spec.name);
            CHECK(f.parameter(spec) == plain.parameter(spec));
        }
    }
}

TEST_CASE("optimizer: results of the last steps can be read late") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 4});
    Fixture f(*context);
    f.set_gradients(1.0F);
    for (std::int64_t step = 1; step <= 6; ++step) {
        f.set_loss(static_cast<float>(step));
        f.optimizer.step(context->compute_stream(), step, 1e-3, 2);
        if (step > 1) CHECK(f.optimizer.result(step - 1).loss == (step - 1) / 2.0);
    }
    CHECK(f.optimizer.result(6).loss == 3.0);
}

TEST_CASE("optimizer: a slot whose step is not known to be done is refused, by number") {
    const auto context = Context::make_cpu({.mode = CpuMode::adversarial, .seed = 4});
    Fixture f(*context);
    f.set_gradients(1.0F);
    const Stream stream = context->compute_stream();
    for (std::int64_t step = 1; step <= Optimizer::kSlots; ++step)
        f.optimizer.step(stream, step, 1e-3, 2);
    CHECK_THROWS_WITH_AS(f.optimizer.step(stream, 5, 1e-3, 2),
                         doctest::Contains("step 5: the device has not done the step 4 before"),
                         Error);
    f.optimizer.result(1);
    CHECK_NOTHROW(f.optimizer.step(stream, 5, 1e-3, 2));
    context->synchronize();
}

TEST_CASE("optimizer: a step without a valid target is refused") {
    const auto context = Context::make_cpu();
    Fixture f(*context);
    CHECK_THROWS_WITH_AS(f.optimizer.step(context->compute_stream(), 9, 1e-3, 0),
                         doctest::Contains("step 9: the global batch has no target"), Error);
}
