// Goal: AdamW follows its formula on fp32 master weights on every device and dtype, keeps what bf16
// alone would lose, and does nothing when the gradient is not finite. Method: float64 loops over
// several steps, the cases B50 and B59 with their expected numbers, guard bytes, odd sizes, one
// case per error.
#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "kernels/adamw.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/source_dir.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

namespace {

nlohmann::json expected_of(const char* folder) {
    std::ifstream file(str(source_dir(), "/tests/cases/", folder, "/expected.json"));
    return nlohmann::json::parse(file);
}

struct Settings {
    float lr = 1e-3F;
    float beta1 = 0.9F;
    float beta2 = 0.999F;
    float eps = 1e-8F;
    float weight_decay = 0.1F;
    float grad_factor = 1.0F;
};

std::vector<float> scalars_of_step(const Settings& s, int step, bool is_finite = true) {
    std::vector<float> scalars(kNumStepScalars, 0.0F);
    scalars[kLearningRate] = s.lr;
    scalars[kBiasCorrection1] = static_cast<float>(1.0 - std::pow(s.beta1, step));
    scalars[kBiasCorrection2] = static_cast<float>(1.0 - std::pow(s.beta2, step));
    scalars[kGradFactor] = s.grad_factor;
    scalars[kIsFinite] = is_finite ? 1.0F : 0.0F;
    return scalars;
}

struct Fixture {
    Fixture(Context& context, std::int64_t n, DType param_dtype, DType grad_dtype)
        : master(context, DType::f32, {n}, random_values("master", n)),
          m(context, DType::f32, {n}, std::vector<float>(static_cast<std::size_t>(n))),
          v(context, DType::f32, {n}, std::vector<float>(static_cast<std::size_t>(n))),
          param(context, param_dtype, {n}),
          grad(context, grad_dtype, {n}),
          scalars(context, DType::f32, {kNumStepScalars}),
          stream(context.compute_stream()) {}

    AdamW args(const Settings& s) const {
        return {.master = master,
                .m = m,
                .v = v,
                .param = param,
                .grad = grad,
                .scalars = scalars,
                .beta1 = s.beta1,
                .beta2 = s.beta2,
                .eps = s.eps,
                .weight_decay = s.weight_decay};
    }
    void step(const Settings& s, int number, const std::vector<float>& gradient) {
        scalars.set(scalars_of_step(s, number));
        grad.set(gradient);
        adamw(stream, args(s));
    }
    std::vector<std::vector<std::uint8_t>> bytes() const {
        return {master.bytes(), m.bytes(), v.bytes(), param.bytes()};
    }

    TestTensor master, m, v, param, grad, scalars;
    Stream stream;
};

struct Oracle {
    std::vector<double> master, m, v;

    void step(const Settings& s, int number, const std::vector<float>& gradient) {
        const double correction1 = 1.0 - std::pow(s.beta1, number);
        const double correction2 = 1.0 - std::pow(s.beta2, number);
        for (std::size_t i = 0; i < master.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) * s.grad_factor;
            m[i] = s.beta1 * m[i] + (1.0 - s.beta1) * g;
            v[i] = s.beta2 * v[i] + (1.0 - s.beta2) * g * g;
            const double direction = (m[i] / correction1) / (std::sqrt(v[i] / correction2) + s.eps);
            master[i] -= s.lr * (direction + s.weight_decay * master[i]);
        }
    }
};

}  // namespace

TEST_CASE("adamw: agrees with float64 over several steps, and param is the rounded master") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const std::int64_t n : {1, 7, 64, 4096, 4099, 100003}) {
            for (const DType param_dtype : float_dtypes()) {
                for (const DType grad_dtype : float_dtypes()) {
                    CAPTURE(name_of(device));
                    CAPTURE(n);
                    CAPTURE(name_of(param_dtype));
                    CAPTURE(name_of(grad_dtype));
                    Fixture f(*context, n, param_dtype, grad_dtype);
                    Settings s;
                    s.grad_factor = 0.37F;
                    const std::vector<double> zeros(static_cast<std::size_t>(n));
                    Oracle expected{to_double(f.master.values()), zeros, zeros};
                    for (int step = 1; step <= 4; ++step) {
                        const auto gradient =
                            rounded(random_values(str("grad", step), n, -3.0F, 3.0F), grad_dtype);
                        f.step(s, step, gradient);
                        expected.step(s, step, gradient);
                    }
                    // One rounding of a master below 1 a step, 2^-25; what the direction's relative
                    // error of 1e-6 adds is lr times that.
                    CHECK(difference(f.master.values(), expected.master, {4 * 0x1.0p-24, 0.0}) ==
                          "");
                    CHECK(difference(f.m.values(), expected.m, {1e-7, 1e-6}) == "");
                    CHECK(difference(f.v.values(), expected.v, {1e-9, 1e-6}) == "");
                    CHECK(f.param.values() == rounded(f.master.values(), param_dtype));
                }
            }
        }
    }
}

TEST_CASE("adamw: without a param the master is the parameter") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, 77, DType::bf16, DType::f32);
        Fixture g(*context, 77, DType::bf16, DType::f32);
        const std::vector<float> gradient = random_values("grad", 77);
        f.step({}, 1, gradient);
        g.scalars.set(scalars_of_step({}, 1));
        g.grad.set(gradient);
        AdamW args = g.args({});
        args.param = Tensor{};
        adamw(g.stream, args);
        CHECK(g.master.bytes() == f.master.bytes());
        CHECK(std::isnan(g.param.values()[0]));
    }
}

TEST_CASE("adamw: does nothing at all when the gradient is not finite") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, 1000, DType::bf16, DType::f32);
        f.step({}, 1, random_values("grad", 1000));
        const auto before = f.bytes();
        f.scalars.set(scalars_of_step({}, 2, false));
        f.grad.set(std::vector<float>(1000, std::nanf("")));
        adamw(f.stream, f.args({}));
        CHECK(f.bytes() == before);
        f.grad.set(random_values("other", 1000));
        adamw(f.stream, f.args({}));
        CHECK(f.bytes() == before);
    }
}

TEST_CASE("adamw: small updates and decay add up in the master that bf16 would round away (B50)") {
    const nlohmann::json expected = expected_of("B50_num_bf16");
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, 3, DType::bf16, DType::bf16);
        f.master.set({1.0F, 1.0F, 1.0F});
        // Without momentum the direction of a gradient of 1 is 1, so a step takes lr away.
        Settings s{.lr = 6e-4F, .beta1 = 0.0F, .beta2 = 0.0F, .weight_decay = 0.0F};
        for (int step = 1; step <= 100; ++step)
            f.step(s, step, {1.0F, 1.0F, 1.0F});
        for (const float master : f.master.values())
            CHECK(std::fabs(master - expected["fp32_master"].get<double>()) < 5e-6);
        for (const float param : f.param.values())
            CHECK(param == expected["bf16_copy_of_master"].get<float>());

        const nlohmann::json& decay = expected["weight_decay"];
        Fixture g(*context, 3, DType::bf16, DType::bf16);
        g.master.set({1.0F, 1.0F, 1.0F});
        s = {.lr = decay["lr"].get<float>(), .weight_decay = decay["wd"].get<float>()};
        for (int step = 1; step <= decay["steps"].get<int>(); ++step)
            g.step(s, step, {0.0F, 0.0F, 0.0F});
        for (const float master : g.master.values())
            CHECK(std::fabs(master - decay["right"].get<double>()) < 1e-5);
    }
}

TEST_CASE("adamw: a resumed run continues with its moments and its step count (B59)") {
    const nlohmann::json expected = expected_of("B59_num_adam");
    Settings s{.lr = expected["lr"].get<float>(),
               .beta1 = expected["betas"][0].get<float>(),
               .beta2 = expected["betas"][1].get<float>(),
               .eps = expected["eps"].get<float>(),
               .weight_decay = expected["weight_decay"].get<float>()};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture first(*context, 1, DType::f32, DType::f32);
        first.master.set({expected["w0"].get<float>()});
        Fixture resumed(*context, 1, DType::f32, DType::f32);
        Fixture* running = &first;
        for (int step = 1; step <= 4; ++step) {
            if (step == 3) {
                resumed.master.set(first.master.values());
                resumed.m.set(first.m.values());
                resumed.v.set(first.v.values());
                running = &resumed;
            }
            const std::size_t index = static_cast<std::size_t>(step - 1);
            running->step(s, step, {expected["grads"][index].get<float>()});
            const double right = expected["w_after_each_step"][index].get<double>();
            CHECK(std::fabs(running->param.values()[0] - right) < 2e-7);
        }
    }
}

TEST_CASE("adamw: decay happens where its argument says so, and only there (B52)") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const float weight_decay : {0.5F, 0.0F}) {
            Fixture f(*context, 33, DType::f32, DType::f32);
            const std::vector<float> before = f.master.values();
            f.step({.lr = 0.1F, .weight_decay = weight_decay}, 1, std::vector<float>(33));
            std::vector<double> expected = to_double(before);
            for (double& value : expected)
                value *= weight_decay > 0.0F ? 0.95 : 1.0;
            CHECK(difference(f.param.values(), expected, {0.0, weight_decay > 0.0F ? 2e-7 : 0.0}) ==
                  "");
        }
    }
}

TEST_CASE("adamw: repeated calls and other numbers of threads give the same bits") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        std::vector<std::vector<std::uint8_t>> first;
        for (const int threads : {1, 1, 2, 3}) {
            const ThreadCount guard(threads);
            Fixture f(*context, 20011, DType::bf16, DType::bf16);
            for (int step = 1; step <= 2; ++step)
                f.step({}, step, random_values(str("grad", step), 20011));
            if (first.empty()) first = f.bytes();
            CHECK(f.bytes() == first);
        }
    }
}

TEST_CASE("adamw: a range may begin anywhere, and gives the bits that the whole gives") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture whole(*context, 101, DType::bf16, DType::bf16);
        Fixture parts(*context, 101, DType::bf16, DType::bf16);
        const std::vector<float> gradient = random_values("grad", 101);
        whole.step({}, 1, gradient);
        parts.scalars.set(scalars_of_step({}, 1));
        parts.grad.set(gradient);
        for (const auto& [begin, end] : {std::pair{0, 33}, {33, 34}, {34, 101}}) {
            AdamW args = parts.args({});
            args.master = parts.master.tensor().slice(begin, end);
            args.m = parts.m.tensor().slice(begin, end);
            args.v = parts.v.tensor().slice(begin, end);
            args.param = parts.param.tensor().slice(begin, end);
            args.grad = parts.grad.tensor().slice(begin, end);
            adamw(parts.stream, args);
        }
        CHECK(parts.bytes() == whole.bytes());
    }
}

TEST_CASE("adamw: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Fixture f(*context, 12, DType::f32, DType::f32);
    const TestTensor half(*context, DType::bf16, {12});
    const TestTensor eleven(*context, DType::f32, {11});
    const auto fails = [&](const AdamW& args, const char* text) {
        CHECK_THROWS_WITH_AS(adamw(f.stream, args), doctest::Contains(text), Error);
    };
    AdamW args = f.args({});
    args.m = eleven;
    fails(args, "adamw: m is (11) f32, must have the 12 elements of master in one dimension");
    args.m = half;
    fails(args, "adamw: m is bf16, must be f32");
    args = f.args({});
    args.v = half;
    fails(args, "adamw: v is bf16, must be f32");
    args = f.args({});
    args.master = half;
    fails(args, "adamw: master is bf16, must be f32");
    args = f.args({});
    args.grad = f.grad.tensor().view({3, 4});
    fails(args, "adamw: grad is (3, 4) f32, must have the 12 elements of master in one dimension");
    args.grad = ConstTensor{};
    fails(args, "adamw: grad is a null view");
    args = f.args({});
    args.param = eleven;
    fails(args, "adamw: param is (11) f32, must have the 12 elements");
    args = f.args({});
    args.scalars = eleven;
    fails(args, "adamw: scalars is (11) f32, must be (8) f32");
    args = f.args({});
    args.grad.device = Device::cuda;
    fails(args, "adamw: grad (12) f32 lies on cuda, the stream on cpu");
    fails(f.args({.beta1 = 1.0F}), "adamw: beta1 = 1, must be in [0, 1)");
    fails(f.args({.beta2 = -0.5F}), "adamw: beta2 = -0.5, must be in [0, 1)");
    fails(f.args({.eps = 0.0F}), "adamw: eps = 0, must be above 0; 1e-8 is usual");
    fails(f.args({.weight_decay = -1.0F}), "adamw: weight_decay = -1, must be 0 or above");
}
