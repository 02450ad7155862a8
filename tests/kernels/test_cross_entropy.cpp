// Goal: losses and their gradient agree with float64 on every device and dtype, also where targets
// are masked, the vocabulary is padded, and logits are extreme. Method: float64 loops from the
// formula, finite differences, poisoned outputs and padding, one case per error.
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "kernels/cross_entropy.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
    std::int64_t N, V, Vp;
};
// One word; primes; no padding; padding; more columns than one partial sum or thread block.
const Shape kShapes[] = {{1, 1, 1},
                         {3, 2, 5},
                         {7, 13, 13},
                         {5, 127, 128},
                         {4, 1021, 1024},
                         {2, 5003, 5120},
                         // More rows than the CUDA kernel has blocks, two of a multiprocessor: in
                         // fp32, in both; GPT-2's vocabulary.
                         {310, 2039, 2048},
                         {310, 4093, 4096},
                         {2, 50257, 50304}};

struct Oracle {
    std::vector<double> losses;
    std::vector<double> dlogits;  // (N, Vp)
};

Oracle oracle(const std::vector<float>& logits, const std::vector<std::int32_t>& targets, Shape s) {
    Oracle result{std::vector<double>(static_cast<std::size_t>(s.N)),
                  std::vector<double>(static_cast<std::size_t>(s.N * s.Vp))};
    for (std::int64_t n = 0; n < s.N; ++n) {
        if (targets[n] == kMaskedTarget) continue;
        double max = logits[n * s.Vp];
        for (std::int64_t v = 0; v < s.V; ++v)
            max = std::fmax(max, logits[n * s.Vp + v]);
        double sum = 0.0;
        for (std::int64_t v = 0; v < s.V; ++v)
            sum += std::exp(logits[n * s.Vp + v] - max);
        result.losses[n] = std::log(sum) + max - logits[n * s.Vp + targets[n]];
        for (std::int64_t v = 0; v < s.V; ++v) {
            const double p = std::exp(logits[n * s.Vp + v] - max) / sum;
            result.dlogits[n * s.Vp + v] = p - (v == targets[n] ? 1.0 : 0.0);
        }
    }
    return result;
}

// Logits whose padding holds what `padding` says, and targets of which every third is masked.
struct Fixture {
    Fixture(Context& context, DType dtype, Shape s, float padding = kNan)
        : shape(s),
          targets_host(random_ids("targets", s.N, static_cast<int>(s.V))),
          logits(context, dtype, {s.N, s.Vp}),
          losses(context, DType::f32, {s.N}),
          targets(context, {s.N}, mask(targets_host)) {
        std::vector<float> values = random_values("logits", s.N * s.Vp, -4.0F, 4.0F);
        for (std::int64_t n = 0; n < s.N; ++n) {
            for (std::int64_t v = s.V; v < s.Vp; ++v)
                values[n * s.Vp + v] = padding;
        }
        logits.set(values);
    }

    static const std::vector<std::int32_t>& mask(std::vector<std::int32_t>& ids) {
        for (std::size_t n = 2; n < ids.size(); n += 3)
            ids[n] = kMaskedTarget;
        return ids;
    }
    CrossEntropy args(bool write_dlogits) const {
        return {.losses = losses,
                .logits = logits,
                .targets = targets,
                .vocab_size = shape.V,
                .write_dlogits = write_dlogits};
    }

    Shape shape;
    std::vector<std::int32_t> targets_host;
    TestTensor logits, losses, targets;
};

// Runs body(context, dtype, shape) for every device, dtype and shape.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                if (is_left_out(shape.N * shape.Vp, 1 << 21)) continue;
                CAPTURE(std::string(name_of(device)));
                CAPTURE(std::string(name_of(dtype)));
                CAPTURE(shape.N);
                CAPTURE(shape.V);
                body(*context, dtype, shape);
            }
        }
    }
}

const Tolerance kLossLimit{2e-6, 1e-6};

// dlogits is rounded to dtype once; p is as exact as exp and one sum are.
Tolerance gradient_limit(DType dtype) {
    return {1e-7, dtype == DType::bf16 ? 0x1.02p-8 : 4e-6};
}

}  // namespace

TEST_CASE("cross_entropy: losses and dlogits agree with float64, NaN in the padding ignored") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const Oracle expected = oracle(f.logits.values(), f.targets_host, s);
        cross_entropy(context.compute_stream(), f.args(true));
        CHECK(difference(f.losses.values(), expected.losses, kLossLimit) == "");
        CHECK(difference(f.logits.values(), expected.dlogits, gradient_limit(dtype)) == "");
    });
}

TEST_CASE("cross_entropy: more rows than blocks, of which only one fits a block's shared memory") {
    const Shape s{134, 29011, 29056};  // sm_90: 227 KB a block, 116 KB a row, 132 blocks
    for (const Device device : test_devices()) {
        if (is_left_out(s.N * s.Vp, 1 << 20)) continue;
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, s);
        const std::vector<float> logits = f.logits.values();
        cross_entropy(context->compute_stream(), f.args(true));
        const std::vector<float> losses = f.losses.values();
        const std::vector<float> dlogits = f.logits.values();
        for (const std::int64_t row : {0, 1, 132, 133}) {
            CAPTURE(row);
            const auto begin = row * s.Vp;
            const auto end = begin + s.Vp;
            const Oracle expected =
                oracle({logits.begin() + begin, logits.begin() + end},
                       {f.targets_host[static_cast<std::size_t>(row)]}, {1, s.V, s.Vp});
            CHECK(difference({losses[static_cast<std::size_t>(row)]}, expected.losses,
                             kLossLimit) == "");
            CHECK(difference({dlogits.begin() + begin, dlogits.begin() + end}, expected.dlogits,
                             gradient_limit(DType::f32)) == "");
        }
    }
}

TEST_CASE("cross_entropy: without write_dlogits the logits keep every bit") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        const auto before = f.logits.bytes();
        const Oracle expected = oracle(f.logits.values(), f.targets_host, s);
        cross_entropy(context.compute_stream(), f.args(false));
        CHECK(f.logits.bytes() == before);
        CHECK(difference(f.losses.values(), expected.losses, kLossLimit) == "");
    });
}

TEST_CASE("cross_entropy: whatever the padding holds, the result has the same bits") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture zero(*context, dtype, {5, 127, 160}, 0.0F);
            cross_entropy(context->compute_stream(), zero.args(true));
            for (const float padding : {kInf, -kInf, 1e30F, kNan}) {
                const Fixture f(*context, dtype, {5, 127, 160}, padding);
                cross_entropy(context->compute_stream(), f.args(true));
                CHECK(f.losses.bytes() == zero.losses.bytes());
                CHECK(f.logits.bytes() == zero.logits.bytes());
            }
        }
    }
}

TEST_CASE("cross_entropy: logits that start at an odd place give the same as others") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, {3, 5003, 5120}, 0.0F);
            std::vector<float> values = f.logits.values();
            values.insert(values.begin(), kNan);
            const TestTensor logits(*context, dtype, {3 * 5120 + 1}, values);
            const Oracle expected = oracle(f.logits.values(), f.targets_host, f.shape);
            CrossEntropy args = f.args(true);
            args.logits = logits.shifted({3, 5120});
            cross_entropy(context->compute_stream(), args);
            std::vector<float> dlogits = logits.values();
            CHECK(std::isnan(dlogits[0]));
            dlogits.erase(dlogits.begin());
            CHECK(difference(f.losses.values(), expected.losses, kLossLimit) == "");
            CHECK(difference(dlogits, expected.dlogits, gradient_limit(dtype)) == "");
        }
    }
}

TEST_CASE("cross_entropy: extreme logits neither overflow nor lose the loss") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{4, 4, 4};
        Fixture f(*context, DType::f32, s);
        const std::vector<float> logits = {1e4F,  -1e4F, 0.0F,    5.0F,    // the target dominates
                                           -1e4F, 1e4F,  9999.0F, 1e4F,    // it is far below
                                           0.0F,  0.0F,  0.0F,    0.0F,    // masked
                                           -kInf, 1.0F,  2.0F,    -kInf};  // impossible others
        f.logits.set(logits);
        const std::vector<std::int32_t> ids = {0, 0, kMaskedTarget, 1};
        const TestTensor targets(*context, {4}, ids);
        CrossEntropy args = f.args(true);
        args.targets = targets;
        cross_entropy(context->compute_stream(), args);
        const Oracle expected = oracle(logits, ids, s);
        CHECK(expected.losses[1] > 2e4);
        CHECK(difference(f.losses.values(), expected.losses, kLossLimit) == "");
        CHECK(difference(f.logits.values(), expected.dlogits, gradient_limit(DType::f32)) == "");
    }
}

TEST_CASE("cross_entropy: NaN or +inf among the words makes that row's loss NaN and no other's") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const float bad : {kNan, kInf}) {
            const Fixture f(*context, DType::f32, {3, 4, 4});
            std::vector<float> logits(12, 0.5F);
            logits[6] = bad;
            TestTensor values(*context, DType::f32, {3, 4}, logits);
            const TestTensor targets(*context, {3}, {0, 1, 2});
            CrossEntropy args = f.args(false);
            args.logits = values;
            args.targets = targets;
            cross_entropy(context->compute_stream(), args);
            const std::vector<float> losses = f.losses.values();
            CHECK(std::isnan(losses[1]));
            CHECK(losses[0] == doctest::Approx(std::log(4.0)));
            CHECK(losses[2] == doctest::Approx(std::log(4.0)));
        }
    }
}

TEST_CASE("cross_entropy: dlogits agree with finite differences of the sum of losses") {
    const auto context = Context::make_cpu();
    const Shape s{3, 6, 8};
    const Fixture f(*context, DType::f32, s, 0.0F);
    const std::vector<float> logits = f.logits.values();
    cross_entropy(context->compute_stream(), f.args(true));
    const std::vector<float> dlogits = f.logits.values();
    const auto loss = [&](const std::vector<float>& x) {
        double sum = 0.0;
        for (const double value : oracle(x, f.targets_host, s).losses)
            sum += value;
        return sum;
    };
    for (std::size_t i = 0; i < logits.size(); ++i) {
        std::vector<float> up = logits;
        std::vector<float> down = logits;
        up[i] += 1.0F / 1024.0F;
        down[i] -= 1.0F / 1024.0F;
        const double slope = (loss(up) - loss(down)) / (static_cast<double>(up[i]) - down[i]);
        CHECK(std::fabs(dlogits[i] - slope) < 1e-6);
    }
}

TEST_CASE("cross_entropy: repeated calls give the same bits") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture first(context, dtype, s);
        const Fixture second(context, dtype, s);
        cross_entropy(context.compute_stream(), first.args(true));
        cross_entropy(context.compute_stream(), second.args(true));
        CHECK(first.losses.bytes() == second.losses.bytes());
        CHECK(first.logits.bytes() == second.logits.bytes());
    });
}

TEST_CASE("cross_entropy: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {3, 5, 8});
    CrossEntropy args = f.args(true);
    args.vocab_size = 9;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: vocab_size = 9, must be 1 to the 8 columns of logits",
                         Error);
    args.vocab_size = 0;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: vocab_size = 0, must be 1 to the 8 columns of logits",
                         Error);
    args = f.args(true);
    args.logits = f.losses;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: logits is (3) f32, must be (N, Vp)", Error);
    args = f.args(true);
    args.logits = make_tensor(args.logits.data, DType::f32, {3, (1 << 30) + 1}, Device::cpu);
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         doctest::Contains("logits is (3, 1073741825) f32, a row of 1073741825 "
                                           "elements, must have at most 1073741824"),
                         Error);
    args = f.args(true);
    args.losses = args.losses.slice(0, 2);
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: losses is (2) f32, must be (3) f32", Error);
    args = f.args(true);
    args.targets = args.targets.slice(0, 2);
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: targets is (2) i32, must be (3) i32", Error);
    args = f.args(true);
    args.targets = f.losses;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args), "cross_entropy: targets is f32, must be i32",
                         Error);
    args = f.args(true);
    args.logits.dtype = DType::u8;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         "cross_entropy: logits is u8, must be f32 or bf16", Error);
    args = f.args(true);
    args.losses.data = nullptr;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args), doctest::Contains("losses is a null view"),
                         Error);
    args = f.args(true);
    args.targets.device = Device::cuda;
    CHECK_THROWS_WITH_AS(cross_entropy(stream, args),
                         doctest::Contains("lies on cuda, the stream on cpu"), Error);
}
