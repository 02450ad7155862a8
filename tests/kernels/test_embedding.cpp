// Goal: the embedding and its gradients agree with float64 on every device and dtype, and the
// gradients overwrite or add exactly where they should. Method: float64 loops, finite differences,
// poisoned outputs, guard bytes, repeated and missing ids, one case per error.
#include <algorithm>

#include <doctest/doctest.h>

#include "engine/core/token_order.h"
#include "kernels/embedding.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"
#include "tests/support/threads.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Shape {
    std::int64_t B, T, C, Vp, max_T;
};
const Shape kShapes[] = {{1, 1, 1, 1, 1},       {2, 3, 5, 7, 3},      {1, 17, 64, 5, 31},
                         {3, 8, 127, 300, 16},  {4, 33, 130, 11, 64}, {2, 64, 768, 1024, 64},
                         {5, 7, 257, 128, 1024}};

struct Fixture {
    Fixture(Context& context, DType dtype, Shape s, DType gradient = DType::f32)
        : shape(s),
          id_values(random_ids("ids", s.B * s.T, static_cast<int>(s.Vp))),
          ids(context, {s.B, s.T}, id_values),
          order(context, {s.B * s.T, 2}, token_order(id_values)),
          wte(context, dtype, {s.Vp, s.C}, random_values("wte", s.Vp * s.C)),
          wpe(context, dtype, {s.max_T, s.C}, random_values("wpe", s.max_T * s.C)),
          out(context, dtype, {s.B, s.T, s.C}),
          dout(context, dtype, {s.B, s.T, s.C}, random_values("dout", s.B * s.T * s.C)),
          dwte(context, gradient, {s.Vp, s.C}),
          dwpe(context, gradient, {s.max_T, s.C}),
          scratch(context,
                  DType::u8,
                  {embedding_backward_scratch_bytes(context.device(), s.B * s.T, s.C)}) {}

    EmbeddingForward forward() const { return {.out = out, .ids = ids, .wte = wte, .wpe = wpe}; }
    EmbeddingBackward backward(bool accumulate_dwte, bool accumulate_dwpe) const {
        return {.dwte = dwte,
                .dwpe = dwpe,
                .scratch = scratch,
                .dout = dout,
                .order = order,
                .accumulate_dwte = accumulate_dwte,
                .accumulate_dwpe = accumulate_dwpe};
    }

    Shape shape;
    std::vector<std::int32_t> id_values;
    TestTensor ids, order, wte, wpe, out, dout, dwte, dwpe, scratch;
};

std::vector<double> forward_oracle(const Fixture& f, bool with_positions) {
    const Shape s = f.shape;
    const std::vector<float> wte = f.wte.values();
    const std::vector<float> wpe = f.wpe.values();
    std::vector<double> out;
    for (std::int64_t n = 0; n < s.B * s.T; ++n) {
        const std::int64_t id = f.id_values[static_cast<std::size_t>(n)];
        for (std::int64_t i = 0; i < s.C; ++i) {
            const double position = wpe[static_cast<std::size_t>((n % s.T) * s.C + i)];
            const double token = wte[static_cast<std::size_t>(id * s.C + i)];
            out.push_back(token + (with_positions ? position : 0.0));
        }
    }
    return out;
}

struct Gradients {
    std::vector<double> dwte, dwpe;
};

Gradients backward_oracle(const Fixture& f) {
    const Shape s = f.shape;
    const std::vector<float> dout = f.dout.values();
    Gradients g{std::vector<double>(static_cast<std::size_t>(s.Vp * s.C)),
                std::vector<double>(static_cast<std::size_t>(s.max_T * s.C))};
    for (std::int64_t n = 0; n < s.B * s.T; ++n) {
        const std::int64_t id = f.id_values[static_cast<std::size_t>(n)];
        for (std::int64_t i = 0; i < s.C; ++i) {
            const double d = dout[static_cast<std::size_t>(n * s.C + i)];
            g.dwte[static_cast<std::size_t>(id * s.C + i)] += d;
            g.dwpe[static_cast<std::size_t>((n % s.T) * s.C + i)] += d;
        }
    }
    return g;
}

// The most often a row of a gradient is added to: the number of terms of its sum.
double most_terms(const Fixture& f) {
    return static_cast<double>(f.shape.B * f.shape.T);
}

template <class Body>
void for_each_case(Body&& body) {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            for (const Shape& shape : kShapes) {
                CAPTURE(name_of(device));
                CAPTURE(name_of(dtype));
                CAPTURE(shape.T);
                CAPTURE(shape.C);
                body(*context, dtype, shape);
            }
        }
    }
}

}  // namespace

TEST_CASE("embedding_forward: is the rounded sum of two rows") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        embedding_forward(context.compute_stream(), f.forward());
        const Tolerance one_rounding{0.0, dtype == DType::f32 ? 0x1.0p-24 : 0x1.0p-8};
        CHECK(difference(f.out.values(), forward_oracle(f, true), one_rounding) == "");
    });
}

TEST_CASE("embedding_forward: without positions the rows are copied bit by bit") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s);
        EmbeddingForward args = f.forward();
        args.wpe = ConstTensor{};
        embedding_forward(context.compute_stream(), args);
        CHECK(difference(f.out.values(), forward_oracle(f, false), {0.0, 0.0}) == "");
    });
}

TEST_CASE("embedding_backward: overwrites every row, also those whose id does not occur") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        for (const DType gradient : float_dtypes()) {
            const Fixture f(context, dtype, s, gradient);
            embedding_backward(context.compute_stream(), f.backward(false, false));
            const Gradients expected = backward_oracle(f);
            const Tolerance limit = tolerance(gradient, most_terms(f), 1.0);
            CHECK(difference(f.dwte.values(), expected.dwte, limit) == "");
            CHECK(difference(f.dwpe.values(), expected.dwpe, limit) == "");
            const std::vector<float> dwte = f.dwte.values();
            int not_zeroed = 0;
            for (std::size_t i = 0; i < dwte.size(); ++i)
                not_zeroed += expected.dwte[i] == 0.0 && dwte[i] != 0.0F ? 1 : 0;
            CHECK(not_zeroed == 0);
        }
    });
}

TEST_CASE("embedding_backward: dwte and dwpe are added to independently") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        Fixture f(context, dtype, s);
        const std::vector<float> old_dwte = random_values("old dwte", s.Vp * s.C);
        const std::vector<float> old_dwpe = random_values("old dwpe", s.max_T * s.C);
        const Tolerance limit = tolerance(DType::f32, most_terms(f) + 1.0, 2.0);
        for (const bool add_dwte : {false, true}) {
            f.dwte.set(old_dwte);
            f.dwpe.set(old_dwpe);
            embedding_backward(context.compute_stream(), f.backward(add_dwte, !add_dwte));
            Gradients expected = backward_oracle(f);
            std::vector<double>& added = add_dwte ? expected.dwte : expected.dwpe;
            const std::vector<float>& old = add_dwte ? old_dwte : old_dwpe;
            for (std::size_t i = 0; i < added.size(); ++i)
                added[i] += old[i];
            CHECK(difference(f.dwte.values(), expected.dwte, limit) == "");
            CHECK(difference(f.dwpe.values(), expected.dwpe, limit) == "");
        }
    });
}

TEST_CASE("embedding_backward: adding leaves the rows of missing ids untouched to the bit") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        Fixture f(*context, DType::bf16, {2, 3, 70, 50, 8}, DType::bf16);
        f.dwte.set(random_values("old", 50 * 70));
        f.dwpe.set(random_values("old wpe", 8 * 70));
        const std::vector<float> dwte = f.dwte.values();
        const std::vector<float> dwpe = f.dwpe.values();
        embedding_backward(context->compute_stream(), f.backward(true, true));
        const auto occurs = [&](std::int64_t v) {
            return std::find(f.id_values.begin(), f.id_values.end(), v) != f.id_values.end();
        };
        const std::vector<float> new_dwte = f.dwte.values();
        const std::vector<float> new_dwpe = f.dwpe.values();
        int changed_rows = 0;
        for (std::int64_t v = 0; v < 50; ++v) {
            const bool is_same = std::equal(dwte.begin() + v * 70, dwte.begin() + (v + 1) * 70,
                                            new_dwte.begin() + v * 70);
            CHECK(is_same == !occurs(v));
            changed_rows += is_same ? 0 : 1;
        }
        CHECK(changed_rows > 0);
        CHECK(std::equal(dwpe.begin() + 3 * 70, dwpe.end(), new_dwpe.begin() + 3 * 70));
    }
}

TEST_CASE("embedding: views that start at odd places give the same bits") {
    const Shape s{3, 8, 64, 30, 16};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const DType dtype : float_dtypes()) {
            const Fixture f(*context, dtype, s);
            const std::int64_t count = s.B * s.T * s.C;
            std::vector<float> values = f.dout.values();
            values.insert(values.begin(), 1e30F);
            const TestTensor dout(*context, dtype, {count + 1}, values);
            const TestTensor out(*context, dtype, {count + 1});
            const TestTensor dwte(*context, DType::f32, {s.Vp * s.C + 1});
            EmbeddingForward forward = f.forward();
            forward.out = out.shifted({s.B, s.T, s.C});
            EmbeddingBackward backward = f.backward(false, false);
            backward.dout = dout.shifted({s.B, s.T, s.C});
            backward.dwte = dwte.shifted({s.Vp, s.C});
            embedding_forward(context->compute_stream(), forward);
            embedding_backward(context->compute_stream(), backward);
            std::vector<float> got_out = out.values();
            std::vector<float> got_dwte = dwte.values();
            CHECK(got_out[0] != got_out[0]);  // still NaN
            CHECK(got_dwte[0] != got_dwte[0]);
            got_out.erase(got_out.begin());
            got_dwte.erase(got_dwte.begin());
            const std::vector<float> got_dwpe = f.dwpe.values();
            embedding_forward(context->compute_stream(), f.forward());
            embedding_backward(context->compute_stream(), f.backward(false, false));
            CHECK(got_out == f.out.values());
            CHECK(got_dwte == f.dwte.values());
            CHECK(got_dwpe == f.dwpe.values());
        }
    }
}

TEST_CASE("embedding_backward: one id everywhere sums all rows in fp32, not in bf16") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        // 1 + 512 times 2^-9: a sum kept in bf16 would stay at 1.
        const std::int64_t T = 513;
        const TestTensor order(*context, {T, 2}, token_order(std::vector<std::int32_t>(T, 2)));
        std::vector<float> rows(static_cast<std::size_t>(T) * 8, 0x1.0p-9F);
        std::fill_n(rows.begin(), 8, 1.0F);
        const TestTensor dout(*context, DType::bf16, {1, T, 8}, rows);
        const TestTensor dwte(*context, DType::bf16, {3, 8});
        const TestTensor scratch(*context, DType::u8,
                                 {embedding_backward_scratch_bytes(device, T, 8)});
        embedding_backward(context->compute_stream(), {.dwte = dwte,
                                                       .dwpe = Tensor{},
                                                       .scratch = scratch,
                                                       .dout = dout,
                                                       .order = order,
                                                       .accumulate_dwte = false,
                                                       .accumulate_dwpe = false});
        std::vector<float> expected(24, 0.0F);
        std::fill_n(expected.begin() + 16, 8, 2.0F);
        CHECK(dwte.values() == expected);
    }
}

TEST_CASE("embedding_backward: runs of an id of any length, from any place in the list") {
    struct Case {
        std::int64_t C;
        DType dtype, gradient;
    };
    const Case cases[] = {{4, DType::bf16, DType::f32},    // whole packs
                          {5, DType::bf16, DType::f32},    // single elements
                          {132, DType::f32, DType::bf16},  // a second slice with one lane
                          {65, DType::f32, DType::f32}};
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        for (const Case& c : cases) {
            for (int lead = 0; lead < 33; ++lead) {
                std::vector<std::int32_t> ids;
                for (int id = 0; id < lead; ++id)
                    ids.push_back(id);
                std::int32_t Vp = 33;
                for (const int length : {1, 15, 16, 17, 2, 31, 32, 33, 1, 47, 48, 49, 530, 3})
                    ids.insert(ids.end(), static_cast<std::size_t>(length), Vp++);
                // Small integers: every sum is exact, whatever its order and dtype.
                const auto N = static_cast<std::int64_t>(ids.size());
                std::vector<float> rows;
                std::vector<float> dwte_sums(static_cast<std::size_t>(Vp * c.C), 1.0F);
                std::vector<float> dwpe_sums;
                for (std::int64_t n = 0; n < N; ++n) {
                    for (std::int64_t i = 0; i < c.C; ++i) {
                        rows.push_back(static_cast<float>((n * 3 + i) % 5 - 2));
                        const std::int64_t id = ids[static_cast<std::size_t>(n)];
                        dwte_sums[static_cast<std::size_t>(id * c.C + i)] += rows.back();
                        dwpe_sums.push_back(2.0F + rows.back());
                    }
                }
                const TestTensor order(*context, {N, 2}, token_order(ids));
                const TestTensor dout(*context, c.dtype, {1, N, c.C}, rows);
                const TestTensor dwte(*context, c.gradient, {Vp, c.C},
                                      std::vector<float>(dwte_sums.size(), 1.0F));
                const TestTensor dwpe(*context, c.gradient, {N, c.C},
                                      std::vector<float>(dwpe_sums.size(), 2.0F));
                const TestTensor scratch(*context, DType::u8,
                                         {embedding_backward_scratch_bytes(device, N, c.C)});
                embedding_backward(context->compute_stream(), {.dwte = dwte,
                                                               .dwpe = dwpe,
                                                               .scratch = scratch,
                                                               .dout = dout,
                                                               .order = order,
                                                               .accumulate_dwte = true,
                                                               .accumulate_dwpe = true});
                CAPTURE(lead);
                CAPTURE(c.C);
                CHECK(dwte.values() == dwte_sums);
                CHECK(dwpe.values() == dwpe_sums);
            }
        }
    }
}

TEST_CASE("embedding_backward: agrees with finite differences of the forward pass") {
    const auto context = Context::make_cpu();
    const Fixture f(*context, DType::f32, {2, 3, 4, 5, 4});
    embedding_backward(context->compute_stream(), f.backward(false, false));
    const std::vector<double> dout = to_double(f.dout.values());
    const auto loss = [&](std::vector<double> wte, std::vector<double> wpe) {
        double sum = 0.0;
        for (std::size_t n = 0; n < 6; ++n) {
            for (std::size_t i = 0; i < 4; ++i) {
                const std::size_t id = static_cast<std::size_t>(f.id_values[n]);
                sum += (wte[id * 4 + i] + wpe[(n % 3) * 4 + i]) * dout[n * 4 + i];
            }
        }
        return sum;
    };
    const std::vector<double> wte = to_double(f.wte.values());
    const std::vector<double> wpe = to_double(f.wpe.values());
    constexpr double kStep = 1e-3;
    std::vector<double> slopes;
    for (std::size_t i = 0; i < wte.size(); ++i) {
        std::vector<double> up = wte;
        up[i] += kStep;
        slopes.push_back((loss(up, wpe) - loss(wte, wpe)) / kStep);
    }
    CHECK(difference(f.dwte.values(), slopes, {1e-6, 1e-6}) == "");
    slopes.clear();
    for (std::size_t i = 0; i < wpe.size(); ++i) {
        std::vector<double> up = wpe;
        up[i] += kStep;
        slopes.push_back((loss(wte, up) - loss(wte, wpe)) / kStep);
    }
    CHECK(difference(f.dwpe.values(), slopes, {1e-6, 1e-6}) == "");
}

TEST_CASE("embedding: repeated calls and other numbers of threads give the same bits") {
    for_each_case([](Context& context, DType dtype, Shape s) {
        const Fixture f(context, dtype, s, dtype);
        std::vector<std::vector<std::uint8_t>> first;
        for (const int threads : {1, 1, 2, 3}) {
            const ThreadCount guard(threads);
            embedding_forward(context.compute_stream(), f.forward());
            embedding_backward(context.compute_stream(), f.backward(false, false));
            const std::vector<std::vector<std::uint8_t>> now = {f.out.bytes(), f.dwte.bytes(),
                                                                f.dwpe.bytes()};
            if (first.empty()) first = now;
            CHECK(now == first);
        }
    });
}

TEST_CASE("embedding: contract violations name the tensor, its value and the limit") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    const Fixture f(*context, DType::f32, {2, 3, 4, 5, 3});
    const TestTensor other(*context, DType::bf16, {5, 4});
    const TestTensor narrow(*context, DType::f32, {5, 3});
    const TestTensor short_table(*context, DType::f32, {2, 4});
    const auto fails = [&](const EmbeddingForward& args, const char* text) {
        CHECK_THROWS_WITH_AS(embedding_forward(stream, args), doctest::Contains(text), Error);
    };
    EmbeddingForward args = f.forward();
    args.wte = narrow;
    fails(args, "embedding_forward: wte is (5, 3) f32, must have rows of C=4, the width of out");
    args = f.forward();
    args.wte = other;
    args.wpe = ConstTensor{};
    fails(args, "embedding_forward: wte is bf16, must be f32");
    args = f.forward();
    args.wpe = other;
    fails(args, "embedding_forward: wpe is bf16, must be f32");
    args = f.forward();
    args.wpe = narrow;
    fails(args, "embedding_forward: wpe is (5, 3) f32, must have rows of C=4");
    args = f.forward();
    args.wpe = short_table;
    fails(args, "embedding_forward: T = 3, but wpe has 2 rows; use a sequence that fits");
    args = f.forward();
    args.out = f.out.tensor().view({6, 4});
    fails(args, "embedding_forward: out is (6, 4) f32, must be (B, T, C)");
    args = f.forward();
    args.out = make_tensor(args.out.data, DType::f32, {1 << 20, 1025, 4}, Device::cpu);
    fails(args,
          "embedding_forward: out is (1048576, 1025, 4) f32, 1074790400 positions, must have at "
          "most 1073741824; split the batch");
    args = f.forward();
    args.ids = f.ids.tensor().view({3, 2});
    fails(args, "embedding_forward: ids is (3, 2) i32, must be (2, 3)");
    args = f.forward();
    args.ids = f.wte;
    fails(args, "embedding_forward: ids is f32, must be i32");
    args = f.forward();
    args.out = Tensor{};
    fails(args, "embedding_forward: out is a null view");
    args = f.forward();
    args.wte.device = Device::cuda;
    fails(args, "embedding_forward: wte (5, 4) f32 lies on cuda, the stream on cpu");

    const auto backward_fails = [&](const EmbeddingBackward& bad, const char* text) {
        CHECK_THROWS_WITH_AS(embedding_backward(stream, bad), doctest::Contains(text), Error);
    };
    EmbeddingBackward backward = f.backward(false, false);
    backward.order = f.ids;
    backward_fails(backward, "embedding_backward: order is (2, 3) i32, must be (6, 2)");
    backward = f.backward(false, false);
    backward.dwpe = short_table;
    backward_fails(backward, "embedding_backward: T = 3, but dwpe has 2 rows");
    backward = f.backward(false, false);
    backward.dwpe = other;
    backward_fails(backward, "embedding_backward: dwpe is bf16, must be f32");
    backward = f.backward(false, false);
    backward.dout = f.ids;
    backward_fails(backward, "embedding_backward: dout is i32, must be f32 or bf16");
}
