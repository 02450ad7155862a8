// Goal: causal attention and its gradients agree with float64 on every device and dtype, for any T,
// head size and grouping of heads. Method: float64 loops over whole rows, finite differences,
// poisoned outputs, guard bytes, shapes around the block sizes, causality by perturbation, one case
// per error.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/attention.h"
#include "tests/support/attention_oracle.h"
#include "tests/support/attention_tensors.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Shape = AttentionSize;
using Oracle = AttentionOracle;

const Shape kShapes[] = {{1, 1, 1, 1, 8},   {2, 5, 3, 3, 16},   {1, 37, 4, 2, 24},
                         {2, 64, 2, 1, 64}, {1, 65, 6, 2, 40},  {1, 131, 2, 2, 128},
                         {3, 32, 4, 4, 32}, {1, 33, 2, 1, 256}, {1, 17, 2, 1, 128}};

struct Fixture : AttentionTensors {
    Fixture(Context& context, DType dtype, const Shape& s, float size = 2.0F)
        : AttentionTensors(context, dtype, s, attention_inputs(s, size)) {}

    void run(Stream stream) const {
        attention_forward(stream, forward());
        attention_backward(stream, backward());
    }
    Oracle expected() const {
        return attention_oracle(to_double(qkv.values()), to_double(dout.values()), shape,
                                shape.scale());
    }
};

// Runs body(context, dtype, shape) for every device, dtype and shape.
template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                if (is_left_out(shape.work(), 1 << 20)) continue;
                CAPTURE(name_of(device));
                CAPTURE(name_of(dtype));
                CAPTURE(shape.T);
                CAPTURE(shape.NH);
                CAPTURE(shape.NKV);
                CAPTURE(shape.HS);
                body(*context, dtype, shape);
            }
        }
    }
}

// out is a mean of values of size 2, rounded once. In bf16 a device may round the weights to bf16
// before it multiplies them, which adds a few of its roundoffs.
Tolerance out_limit(DType dtype, const Shape& s) {
    return tolerance(dtype, static_cast<double>(s.HS), 4.0);
}

void check_forward(const AttentionTensors& f, DType dtype, const Oracle& expected) {
    const Shape& s = f.shape;
    CHECK(difference(f.out.values(), expected.out, out_limit(dtype, s)) == "");
    // A score is a sum of HS products of size 4, times scale; lse is fp32 for both dtypes.
    CHECK(difference(f.lse.values(), expected.lse,
                     tolerance(DType::f32, static_cast<double>(s.HS), 4.0)) == "");
}

void check_backward(const AttentionTensors& f, DType dtype, const Oracle& expected) {
    const Shape& s = f.shape;
    // In bf16 the saved `out` was rounded, which shifts D = dout . out by up to sqrt(HS) u, and dk
    // and dv are sums over T queries and the heads of a group.
    const double terms = static_cast<double>(s.HS * s.T * (s.NH / s.NKV));
    const double scale = dtype == DType::f32 ? 2.0 : 8.0;
    CHECK(difference(f.dqkv.values(), expected.dqkv, tolerance(dtype, terms, scale)) == "");
    CHECK(relative_error(f.dqkv.values(), expected.dqkv) <
          (dtype == DType::f32 ? 2e-6 : (s.T == 1 ? 8e-3 : 6e-3)));
}

}  // namespace

TEST_CASE("attention_forward: agrees with float64") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        attention_forward(context.compute_stream(), f.forward());
        check_forward(f, dtype, f.expected());
    });
}

TEST_CASE("attention_backward: agrees with float64") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        f.run(context.compute_stream());
        check_backward(f, dtype, f.expected());
    });
}

// The general path's CUDA kernels are made for sizes 64, 128 and 256; others fill them partly.
TEST_CASE("attention: the general path agrees with float64 for every head size it promises") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (int HS = 8; HS <= 256; HS += 8) {
            const Shape s{1, 17, 2, 1, HS};
            for (const DType dtype : float_dtypes()) {
                CAPTURE(name_of(device));
                CAPTURE(name_of(dtype));
                CAPTURE(HS);
                const Fixture f(*context, dtype, s);
                attention_forward(context->compute_stream(), f.forward(AttentionMethod::general));
                attention_backward(context->compute_stream(), f.backward(AttentionMethod::general));
                const Oracle expected = f.expected();
                check_forward(f, dtype, expected);
                check_backward(f, dtype, expected);
            }
        }
    }
}

TEST_CASE("attention: more sequences than a grid has blocks in its third dimension") {
    for (const Device device : test_devices()) {
        const Shape s{65537, 2, 1, 1, 8};
        if (is_left_out(s.work(), 1 << 20)) continue;
        const auto context = make_context(device);
        const Fixture f(*context, DType::f32, s);
        f.run(context->compute_stream());
        const Oracle expected = f.expected();
        CHECK(difference(f.out.values(), expected.out, out_limit(DType::f32, s)) == "");
        CHECK(difference(f.dqkv.values(), expected.dqkv, tolerance(DType::f32, 16.0, 4.0)) == "");
    }
}

TEST_CASE("attention: one position copies its value and passes its gradient to the value alone") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, {2, 1, 2, 2, 16});
            f.run(context->compute_stream());
            const std::vector<float> qkv = f.qkv.values();
            const std::vector<float> out = f.out.values();
            const std::vector<float> dout = f.dout.values();
            const std::vector<float> dqkv = f.dqkv.values();
            for (std::size_t b = 0; b < 2; ++b) {
                for (std::size_t i = 0; i < 32; ++i) {
                    CHECK(out[b * 32 + i] == qkv[b * 96 + 64 + i]);
                    CHECK(dqkv[b * 96 + 64 + i] == dout[b * 32 + i]);
                }
            }
        }
    }
}

TEST_CASE("attention_forward: a position sees neither later ones nor other sequences") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{2, 70, 2, 1, 16};
        Fixture f(*context, DType::f32, s);
        attention_forward(context->compute_stream(), f.forward());
        const std::vector<float> before = f.out.values();
        std::vector<float> qkv = f.qkv.values();
        constexpr std::int64_t kChanged = 41;  // of the first sequence
        for (std::int64_t i = 0; i < s.row(); ++i)
            qkv[static_cast<std::size_t>(kChanged * s.row() + i)] += 5.0F;
        f.qkv.set(qkv);
        attention_forward(context->compute_stream(), f.forward());
        const std::vector<float> after = f.out.values();
        for (std::int64_t t = 0; t < 2 * s.T; ++t) {
            const bool is_same =
                std::equal(before.begin() + t * s.C(), before.begin() + (t + 1) * s.C(),
                           after.begin() + t * s.C());
            CHECK(is_same == (t < kChanged || t >= s.T));
        }
    }
}

TEST_CASE("attention: grouped heads equal as many heads with repeated keys and values") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape grouped{1, 45, 6, 2, 16};
        const Shape full{1, 45, 6, 6, 16};
        const Fixture f(*context, DType::f32, grouped);
        Fixture g(*context, DType::f32, full);
        const std::vector<float> qkv = f.qkv.values();
        std::vector<float> repeated;
        for (std::int64_t t = 0; t < grouped.T; ++t) {
            for (std::int64_t slot = 0; slot < 18; ++slot) {
                const std::int64_t source = slot < 6 ? slot : 6 + (slot - 6) / 3;
                const auto begin = qkv.begin() + t * grouped.row() + source * 16;
                repeated.insert(repeated.end(), begin, begin + 16);
            }
        }
        g.qkv.set(repeated);
        f.run(context->compute_stream());
        g.run(context->compute_stream());
        CHECK(difference(f.out.values(), to_double(g.out.values()), {1e-6, 1e-6}) == "");
        const std::vector<float> separate = g.dqkv.values();
        std::vector<double> summed;
        for (std::int64_t t = 0; t < grouped.T; ++t) {
            for (std::int64_t slot = 0; slot < 10; ++slot) {
                for (std::int64_t d = 0; d < 16; ++d) {
                    const auto value = [&](std::int64_t from) {
                        return static_cast<double>(
                            separate[static_cast<std::size_t>(t * full.row() + from * 16 + d)]);
                    };
                    const std::int64_t first = 6 + (slot - 6) * 3;
                    summed.push_back(slot < 6 ? value(slot)
                                              : value(first) + value(first + 1) + value(first + 2));
                }
            }
        }
        CHECK(difference(f.dqkv.values(), summed, {2e-5, 1e-5}) == "");
    }
}

TEST_CASE("attention: scores far beyond the range of exp neither overflow nor lose the maximum") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{1, 67, 1, 1, 64};
        const Fixture f(*context, DType::f32, s, 60.0F);  // scores reach several thousand
        f.run(context->compute_stream());
        const Oracle expected = f.expected();
        CHECK(*std::max_element(expected.lse.begin(), expected.lse.end()) > 1000.0);
        // exp turns the absolute error of a score, about 2^-23 sqrt(HS) 60^2 / 8, into a relative
        // one of the weights.
        CHECK(relative_error(f.out.values(), expected.out) < 1e-3);
        CHECK(difference(f.lse.values(), expected.lse, {2e-3, 1e-6}) == "");
        for (const float value : f.dqkv.values())
            CHECK(std::isfinite(value));
    }
}

TEST_CASE("attention_backward: agrees with finite differences of the forward pass") {
    const auto context = Context::make_cpu();
    const Shape s{1, 5, 2, 1, 8};
    const Fixture f(*context, DType::f32, s);
    f.run(context->compute_stream());
    const std::vector<double> qkv = to_double(f.qkv.values());
    const std::vector<double> dout = to_double(f.dout.values());
    const auto loss = [&](const std::vector<double>& x) {
        const Oracle o = attention_oracle(x, dout, s, s.scale());
        double sum = 0.0;
        for (std::size_t i = 0; i < o.out.size(); ++i)
            sum += o.out[i] * dout[i];
        return sum;
    };
    constexpr double kStep = 1e-5;
    std::vector<double> slopes;
    for (std::size_t i = 0; i < qkv.size(); ++i) {
        std::vector<double> up = qkv;
        std::vector<double> down = qkv;
        up[i] += kStep;
        down[i] -= kStep;
        slopes.push_back((loss(up) - loss(down)) / (2.0 * kStep));
    }
    CHECK(difference(f.dqkv.values(), slopes, {2e-6, 1e-5}) == "");
}

TEST_CASE("attention: views that start at odd places give the same as others") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{2, 37, 2, 1, 64};
        const Fixture f(*context, DType::bf16, s);
        f.run(context->compute_stream());
        const std::int64_t rows = s.B * s.T;
        std::vector<float> qkv = f.qkv.values();
        qkv.insert(qkv.begin(), std::nanf(""));
        std::vector<float> dout = f.dout.values();
        dout.insert(dout.begin(), std::nanf(""));
        const TestTensor odd_qkv(*context, DType::bf16, {rows * s.row() + 1}, qkv);
        const TestTensor odd_dout(*context, DType::bf16, {rows * s.C() + 1}, dout);
        const TestTensor odd_out(*context, DType::bf16, {rows * s.C() + 1});
        const TestTensor odd_dqkv(*context, DType::bf16, {rows * s.row() + 1});
        const Tensor out = odd_out.shifted({s.B, s.T, s.C()});
        AttentionForward forward = f.forward();
        forward.qkv = odd_qkv.shifted({s.B, s.T, s.row()});
        forward.out = out;
        AttentionBackward backward = f.backward();
        backward.qkv = forward.qkv;
        backward.out = out;
        backward.dout = odd_dout.shifted({s.B, s.T, s.C()});
        backward.dqkv = odd_dqkv.shifted({s.B, s.T, s.row()});
        const std::vector<double> expected_out = to_double(f.out.values());
        const std::vector<double> expected_dqkv = to_double(f.dqkv.values());
        attention_forward(context->compute_stream(), forward);
        attention_backward(context->compute_stream(), backward);
        std::vector<float> got_out = odd_out.values();
        std::vector<float> got_dqkv = odd_dqkv.values();
        CHECK(std::isnan(got_out[0]));
        CHECK(std::isnan(got_dqkv[0]));
        got_out.erase(got_out.begin());
        got_dqkv.erase(got_dqkv.begin());
        // Another path may take them: two roundings to bf16 apart.
        CHECK(relative_error(got_out, expected_out) < 8e-3);
        CHECK(relative_error(got_dqkv, expected_dqkv) < 1.6e-2);
    }
}

TEST_CASE("attention: repeated calls and other numbers of threads give the same bits") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        std::vector<std::vector<std::uint8_t>> first;
        for (const int threads : {1, 1, 2, 3}) {
            const ThreadCount guard(threads);
            f.run(context.compute_stream());
            const std::vector<std::vector<std::uint8_t>> now = {f.out.bytes(), f.lse.bytes(),
                                                                f.dqkv.bytes()};
            if (first.empty()) first = now;
            CHECK(now == first);
        }
    });
}

TEST_CASE("attention: a NaN in a value reaches the positions that see it") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const Shape s{1, 40, 1, 1, 8};
        Fixture f(*context, DType::f32, s);
        std::vector<float> qkv = f.qkv.values();
        qkv[static_cast<std::size_t>(33 * s.row() + 8)] = std::nanf("");  // of the key at 33
        f.qkv.set(qkv);
        attention_forward(context->compute_stream(), f.forward());
        const std::vector<float> out = f.out.values();
        for (std::int64_t t = 0; t < s.T; ++t)
            CHECK(std::isnan(out[static_cast<std::size_t>(t * 8)]) == (t >= 33));
    }
}

TEST_CASE("attention: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {2, 3, 4, 2, 8});
    const TestTensor half(*context, DType::bf16, {2, 3, 32});
    const TestTensor wide(*context, DType::f32, {1, 1, 3 * 264});
    const auto fails = [&](const AttentionForward& args, const char* text) {
        CHECK_THROWS_WITH_AS(attention_forward(stream, args), doctest::Contains(text), Error);
    };
    AttentionForward args = f.forward();
    args.num_kv_heads = 3;
    fails(args,
          "attention_forward: 4 query heads and 3 key/value heads; the second must be at least 1 "
          "and divide the first");
    args.num_kv_heads = 0;
    fails(args, "4 query heads and 0 key/value heads");
    args = f.forward();
    args.num_heads = 6;
    fails(args, "qkv is (2, 3, 64) f32; its last dimension must be a multiple of NH + 2 NKV = 10");
    args.num_heads = 12;
    fails(args, "attention_forward: head size 4, must be 8 to 256 in multiples of 8");
    args = f.forward();
    args.qkv = wide;
    args.num_heads = args.num_kv_heads = 1;
    fails(args, "head size 264, must be 8 to 256");
    args = f.forward();
    args.qkv = f.qkv.tensor().view({6, 64});
    fails(args, "qkv is (6, 64) f32, must be (B, T, (NH + 2 NKV) * HS) with T >= 1");
    args = f.forward();
    args.out = half;
    fails(args, "attention_forward: out is bf16, must be f32");
    args.out = f.qkv;
    fails(args, "attention_forward: out is (2, 3, 64) f32, must be (2, 3, 32) f32");
    args = f.forward();
    args.lse = f.lse.tensor().view({2, 3, 4});
    fails(args, "attention_forward: lse is (2, 3, 4) f32, must be (2, 4, 3) f32");
    args.lse = Tensor{};
    fails(args, "attention_forward: lse is a null view");
    args = f.forward();
    args.qkv.device = Device::cuda;
    fails(args, "attention_forward: qkv (2, 3, 64) f32 lies on cuda, the stream on cpu");

    const auto backward_fails = [&](const AttentionBackward& bad, const char* text) {
        CHECK_THROWS_WITH_AS(attention_backward(stream, bad), doctest::Contains(text), Error);
    };
    AttentionBackward backward = f.backward();
    backward.dout = half;
    backward_fails(backward, "attention_backward: dout is bf16, must be f32");
    backward = f.backward();
    backward.dqkv = f.out;
    backward_fails(backward, "attention_backward: dqkv is (2, 3, 32) f32, must be (2, 3, 64) f32");
    const Fixture g(*context, DType::bf16, {2, 3, 4, 2, 8});
    backward = g.backward();
    backward.scratch = g.scratch.tensor().slice(4, 768);
    backward_fails(backward,
                   "attention_backward: scratch starts 4 bytes past a multiple of 16 bytes; "
                   "allocate it from an arena");
    backward.scratch = g.scratch.tensor().slice(0, 100);
    backward_fails(backward, "attention_backward: scratch has 100 bytes, 768 are needed");
}
