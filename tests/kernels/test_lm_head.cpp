// Goal: head, loss and their gradients agree with float64 whatever the chunk, in every mode.
// Method: float64 loops from the formula over the whole (N, Vp) logits, poisoned outputs, chunks
// that divide the rows, do not, and exceed them; case B46 (one mean over all trained tokens).
#include <cmath>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "kernels/cross_entropy.h"
#include "kernels/lm_head.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/source_dir.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Shape {
    std::int64_t N, C, V, Vp;
};
const Shape kShapes[] = {{1, 1, 1, 1}, {7, 5, 11, 13}, {10, 33, 127, 128}, {6, 64, 300, 384}};

struct Oracle {
    std::vector<double> losses, dinp, dweight;
};

// dweight is what one call adds.
Oracle oracle(const std::vector<double>& inp,
              const std::vector<double>& weight,
              const std::vector<std::int32_t>& targets,
              Shape s) {
    Oracle result{std::vector<double>(static_cast<std::size_t>(s.N)),
                  std::vector<double>(static_cast<std::size_t>(s.N * s.C)),
                  std::vector<double>(static_cast<std::size_t>(s.Vp * s.C))};
    for (std::int64_t n = 0; n < s.N; ++n) {
        if (targets[n] == kMaskedTarget) continue;
        std::vector<double> p(static_cast<std::size_t>(s.V));
        double sum = 0.0;
        for (std::int64_t v = 0; v < s.V; ++v) {
            double logit = 0.0;
            for (std::int64_t c = 0; c < s.C; ++c)
                logit += inp[n * s.C + c] * weight[v * s.C + c];
            p[v] = std::exp(logit);  // logits of these tests are small
            sum += p[v];
        }
        result.losses[n] = -std::log(p[targets[n]] / sum);
        for (std::int64_t v = 0; v < s.V; ++v) {
            const double d = p[v] / sum - (v == targets[n] ? 1.0 : 0.0);
            for (std::int64_t c = 0; c < s.C; ++c) {
                result.dinp[n * s.C + c] += d * weight[v * s.C + c];
                result.dweight[v * s.C + c] += d * inp[n * s.C + c];
            }
        }
    }
    return result;
}

struct Fixture {
    Fixture(Context& context, DType dtype, Shape s, std::int64_t chunk, DType gradient = DType::f32)
        : shape(s),
          ids(random_ids("targets", s.N, static_cast<int>(s.V))),
          inp(context, dtype, {s.N, s.C}, random_values("inp", s.N * s.C)),
          weight(context, dtype, {s.Vp, s.C}, random_values("weight", s.Vp * s.C, -0.5F, 0.5F)),
          logits(context, dtype, {chunk, s.Vp}),
          losses(context, DType::f32, {s.N}),
          dinp(context, dtype, {s.N, s.C}),
          dweight(context, gradient, {s.Vp, s.C}),
          targets(context, {s.N}, mask(ids)) {}

    static const std::vector<std::int32_t>& mask(std::vector<std::int32_t>& ids) {
        for (std::size_t n = 1; n < ids.size(); n += 4)
            ids[n] = kMaskedTarget;
        return ids;
    }
    LmHeadLoss args(bool accumulate) const {
        return {.losses = losses,
                .dinp = dinp,
                .dweight = dweight,
                .logits = logits,
                .inp = inp,
                .weight = weight,
                .targets = targets,
                .vocab_size = shape.V,
                .accumulate = accumulate};
    }
    Oracle expected() const {
        return oracle(to_double(inp.values()), to_double(weight.values()), ids, shape);
    }

    Shape shape;
    std::vector<std::int32_t> ids;
    TestTensor inp, weight, logits, losses, dinp, dweight, targets;
};

// Runs body(context, dtype, shape, chunk) for every device, dtype and shape, and chunks of one row,
// three (which do not divide N), all rows, and more than all.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                for (const std::int64_t chunk :
                     {std::int64_t{1}, std::int64_t{3}, shape.N, shape.N + 5}) {
                    CAPTURE(std::string(name_of(device)));
                    CAPTURE(std::string(name_of(dtype)));
                    CAPTURE(shape.N);
                    CAPTURE(shape.V);
                    CAPTURE(chunk);
                    body(*context, dtype, shape, chunk);
                }
            }
        }
    }
}

// In bf16 the logits (below 8 in size) and dlogits are rounded in between.
Tolerance loss_limit(DType dtype) {
    return dtype == DType::bf16 ? Tolerance{0.02, 0.01} : Tolerance{4e-6, 2e-6};
}
Tolerance gradient_limit(DType dtype) {
    return dtype == DType::bf16 ? Tolerance{0.01, 0.02} : Tolerance{4e-6, 1e-5};
}

}  // namespace

TEST_CASE("lm_head_loss: losses, dinp and dweight agree with float64 for every chunk") {
    for_each_case([](Context& context, DType dtype, Shape s, std::int64_t chunk) {
        const Fixture f(context, dtype, s, chunk);
        lm_head_loss(context.compute_stream(), f.args(false));  // over NaN
        const Oracle expected = f.expected();
        CHECK(difference(f.losses.values(), expected.losses, loss_limit(dtype)) == "");
        CHECK(difference(f.dinp.values(), expected.dinp, gradient_limit(dtype)) == "");
        CHECK(difference(f.dweight.values(), expected.dweight, gradient_limit(dtype)) == "");
    });
}

TEST_CASE("lm_head_loss: dweight accumulates over calls and is overwritten when asked to") {
    for_each_case([](Context& context, DType dtype, Shape s, std::int64_t chunk) {
        for (const DType gradient : float_dtypes()) {
            const Fixture f(context, dtype, s, chunk, gradient);
            const Stream stream = context.compute_stream();
            lm_head_loss(stream, f.args(false));
            const std::vector<float> once = f.dweight.values();
            lm_head_loss(stream, f.args(true));
            std::vector<double> twice = to_double(once);
            for (double& value : twice)
                value *= 2.0;
            // Every chunk of a bf16 gradient rounds once more.
            const Tolerance limit =
                gradient == DType::bf16 ? Tolerance{0.05, 0.05} : Tolerance{2e-6, 1e-6};
            CHECK(difference(f.dweight.values(), twice, limit) == "");
            lm_head_loss(stream, f.args(false));
            CHECK(f.dweight.values() == once);
        }
    });
}

TEST_CASE("lm_head_loss: no rows leave an added dweight alone and zero an overwritten one") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const TestTensor empty(*context, DType::f32, {0, 2});
        const TestTensor losses(*context, DType::f32, {0});
        const TestTensor targets(*context, {0}, std::vector<std::int32_t>{});
        const TestTensor weight(*context, DType::f32, {3, 2}, std::vector<float>(6, 1.0F));
        const TestTensor dweight(*context, DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6});
        const TestTensor logits(*context, DType::f32, {4, 3});
        LmHeadLoss args{.losses = losses,
                        .dinp = empty,
                        .dweight = dweight,
                        .logits = logits,
                        .inp = empty,
                        .weight = weight,
                        .targets = targets,
                        .vocab_size = 3,
                        .accumulate = true};
        lm_head_loss(context->compute_stream(), args);
        CHECK(dweight.values() == std::vector<float>{1, 2, 3, 4, 5, 6});
        args.accumulate = false;
        lm_head_loss(context->compute_stream(), args);
        CHECK(dweight.values() == std::vector<float>(6, 0.0F));
    }
}

TEST_CASE("lm_head_loss: the rows of the padding get no gradient and no probability") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{7, 5, 11, 16};
        const Fixture f(*context, DType::f32, s, 3);
        lm_head_loss(context->compute_stream(), f.args(false));
        const std::vector<float> losses = f.losses.values();
        const std::vector<float> dweight = f.dweight.values();
        for (std::int64_t i = s.V * s.C; i < s.Vp * s.C; ++i)
            CHECK(dweight[static_cast<std::size_t>(i)] == 0.0F);
        std::vector<float> weight = f.weight.values();
        for (std::int64_t i = s.V * s.C; i < s.Vp * s.C; ++i)
            weight[static_cast<std::size_t>(i)] = 50.0F;
        TestTensor loud(*context, DType::f32, {s.Vp, s.C}, weight);
        LmHeadLoss args = f.args(false);
        args.weight = loud;
        lm_head_loss(context->compute_stream(), args);
        CHECK(f.losses.values() == losses);
    }
}

TEST_CASE("lm_head_loss: without gradients the losses have the same bits and nothing is touched") {
    for_each_case([](Context& context, DType dtype, Shape s, std::int64_t chunk) {
        const Fixture f(context, dtype, s, chunk);
        const auto dinp = f.dinp.bytes();
        const auto dweight = f.dweight.bytes();
        LmHeadLoss args = f.args(false);
        args.dinp = Tensor{};
        args.dweight = Tensor{};
        lm_head_loss(context.compute_stream(), args);
        const auto losses = f.losses.bytes();
        CHECK(f.dinp.bytes() == dinp);
        CHECK(f.dweight.bytes() == dweight);
        lm_head_loss(context.compute_stream(), f.args(false));
        CHECK(f.losses.bytes() == losses);
    });
}

TEST_CASE("lm_head_loss: a mean over all trained tokens does not depend on the split (B46)") {
    // Two micro-batches of 10 and 100 trained tokens with losses of 2 and 1 a token. Sums and
    // counts give 1.0909 together and apart; a mean of the two means would be 1.5.
    std::ifstream file(source_dir() + "/tests/cases/B46_num_accum/expected.json");
    const nlohmann::json expected = nlohmann::json::parse(file);
    const int short_count = expected["micro_batches"][0]["trained_tokens"];
    const int long_count = expected["micro_batches"][1]["trained_tokens"];
    const double right = expected["right"];
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    constexpr std::int64_t kRows = 100;

    // One channel that is 1: the logits of a row are weight * inp = (inp, 0). With target 0 the
    // loss is log(1 + e^-inp), and inp = -log(e^loss - 1).
    const auto input_of = [](double loss) {
        return static_cast<float>(-std::log(std::expm1(loss)));
    };
    std::vector<float> inputs(2 * kRows, 0.0F);
    std::vector<std::int32_t> ids(2 * kRows, kMaskedTarget);
    for (int n = 0; n < short_count; ++n) {
        inputs[n] = input_of(expected["micro_batches"][0]["loss_per_token"]);
        ids[n] = 0;
    }
    for (int n = 0; n < long_count; ++n) {
        inputs[kRows + n] = input_of(expected["micro_batches"][1]["loss_per_token"]);
        ids[kRows + n] = 0;
    }
    const TestTensor inp(*context, DType::f32, {2 * kRows, 1}, inputs);
    const TestTensor weight(*context, DType::f32, {2, 1}, {1.0F, 0.0F});
    const TestTensor targets(*context, {2 * kRows}, ids);
    const TestTensor losses(*context, DType::f32, {2 * kRows});
    const TestTensor dinp(*context, DType::f32, {2 * kRows, 1});
    const TestTensor dweight(*context, DType::f32, {2, 1});
    const TestTensor logits(*context, DType::f32, {32, 2});
    const auto run = [&](std::int64_t begin, std::int64_t end, bool accumulate) {
        lm_head_loss(stream, {.losses = losses.tensor().slice(begin, end),
                              .dinp = dinp.tensor().slice(begin, end),
                              .dweight = dweight,
                              .logits = logits,
                              .inp = inp.tensor().slice(begin, end),
                              .weight = weight,
                              .targets = targets.tensor().slice(begin, end),
                              .vocab_size = 2,
                              .accumulate = accumulate});
    };
    const double tokens = short_count + long_count;
    const auto mean = [&] {
        double sum = 0.0;
        for (const float loss : losses.values())
            sum += loss;
        return sum / tokens;
    };
    run(0, 2 * kRows, false);
    CHECK(mean() == doctest::Approx(right).epsilon(1e-6));
    const std::vector<double> together = to_double(dweight.values());
    run(0, kRows, false);
    run(kRows, 2 * kRows, true);
    CHECK(mean() == doctest::Approx(right).epsilon(1e-6));
    CHECK(difference(dweight.values(), together, {0.0, 1e-6}) == "");
}

TEST_CASE("lm_head_loss: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {3, 4, 5, 8}, 2);
    const auto message = [&](auto&& change) {
        LmHeadLoss args = f.args(false);
        change(args);
        try {
            lm_head_loss(stream, args);
        } catch (const Error& error) {
            return std::string(error.code()) + " " + error.what();
        }
        return std::string("accepted");
    };
    CHECK(message([&](LmHeadLoss& a) { a.inp = f.losses; }) ==
          "lm_head.shape lm_head_loss: inp is (3) f32, must be (N, C)");
    CHECK(message([&](LmHeadLoss& a) {
              a.weight = a.weight.view({4, 8});
          }) == "lm_head.shape lm_head_loss: weight is (4, 8) f32, must be (Vp, C) with C = 4");
    CHECK(message([&](LmHeadLoss& a) {
              a.logits = a.logits.view({4, 4});
          }) ==
          "lm_head.shape lm_head_loss: logits is (4, 4) f32, must be (chunk, Vp) with chunk >= 1 "
          "and Vp = 8");
    CHECK(message([&](LmHeadLoss& a) { a.logits = a.logits.slice(0, 0); }) ==
          "lm_head.shape lm_head_loss: logits is (0, 8) f32, must be (chunk, Vp) with chunk >= 1 "
          "and Vp = 8");
    CHECK(message([&](LmHeadLoss& a) { a.losses = a.losses.slice(0, 2); }) ==
          "lm_head.shape lm_head_loss: losses is (2) f32, must be (3) f32");
    CHECK(message([&](LmHeadLoss& a) { a.targets = a.targets.slice(0, 2); }) ==
          "lm_head.shape lm_head_loss: targets is (2) i32, must be (3) i32");
    CHECK(message([&](LmHeadLoss& a) { a.dweight = Tensor{}; }) ==
          "lm_head.shape lm_head_loss: dinp is given but dweight is a null view; pass both, or "
          "neither for the loss alone");
    CHECK(message([&](LmHeadLoss& a) { a.dinp = Tensor{}; }) ==
          "lm_head.shape lm_head_loss: dweight is given but dinp is a null view; pass both, or "
          "neither for the loss alone");
    CHECK(message([&](LmHeadLoss& a) {
              a.dinp = a.dinp.view({4, 3});
          }) == "lm_head.shape lm_head_loss: dinp is (4, 3) f32, must be (3, 4) f32");
    CHECK(message([&](LmHeadLoss& a) {
              a.dweight = a.dweight.view({4, 8});
          }) == "lm_head.shape lm_head_loss: dweight is (4, 8) f32, must be (8, 4) f32");
    CHECK(
        message([&](LmHeadLoss& a) { a.vocab_size = 9; }) ==
        "cross_entropy.shape cross_entropy: vocab_size = 9, must be 1 to the 8 columns of logits");
}
