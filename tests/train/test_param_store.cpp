// Goal: the store initializes like GPT-2, reproducibly, and copies what it is told to copy.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "engine/train/param_store.h"
#include "tests/support/device_matrix.h"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<float> read_all(const ParamStore& store, const std::string& name) {
    const ParamSpec& spec = store.table().find(name);
    std::vector<float> values(static_cast<std::size_t>(spec.numel()));
    store.read(spec, 0, spec.numel(), values.data());
    return values;
}

double deviation(const std::vector<float>& values) {
    double squares = 0.0;
    for (const float value : values)
        squares += static_cast<double>(value) * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
}

DecoderConfig tiny() {
    DecoderConfig config = preset("gpt2-tiny");
    config.vocab_size = 1000;  // padded to 1024
    return config;
}

}  // namespace

TEST_CASE("param store: GPT-2's initialization, padded rows zero, a function of the seed") {
    const auto context = Context::make_cpu();
    const ParamTable table = make_gpt2_param_table(tiny());
    ParamStore store(*context, table, {});
    ParamStore other(*context, table, {});
    store.initialize(1);
    other.initialize(1);
    CHECK(read_all(store, "wte") == read_all(other, "wte"));
    other.initialize(2);
    CHECK(read_all(store, "wte") != read_all(other, "wte"));
    CHECK(deviation(read_all(store, "h1.fcw")) == doctest::Approx(0.02).epsilon(0.02));
    CHECK(deviation(read_all(store, "h1.fcprojw")) ==
          doctest::Approx(0.02 / std::sqrt(8.0)).epsilon(0.02));
    CHECK(read_all(store, "h1.fcw") != read_all(store, "h2.fcw"));
    const std::vector<float> ones = read_all(store, "h0.ln1w");
    CHECK(std::all_of(ones.begin(), ones.end(), [](float x) { return x == 1.0F; }));
    CHECK(deviation(read_all(store, "h0.qkvb")) == 0.0);
    const std::vector<float> wte = read_all(store, "wte");
    CHECK(std::all_of(wte.begin() + 1000 * 128, wte.end(), [](float x) { return x == 0.0F; }));
    CHECK(wte[999 * 128 + 127] != 0.0F);
}

TEST_CASE("param store: bf16 parameters are the rounded master") {
    for (const Device device : test_devices()) {
        const auto context = make_context(device);
        const ParamTable table = make_gpt2_param_table(tiny());
        ParamStore store(*context, table, {.params = DType::bf16, .grads = DType::f32});
        store.initialize(3);
        std::vector<float> master(static_cast<std::size_t>(store.master(1).numel()));
        std::vector<float> params(master.size());
        read_floats(*context, store.master(1), master.data());
        read_floats(*context, store.params(1), params.data());
        int wrong = 0;
        for (std::size_t i = 0; i < master.size(); ++i) {
            wrong += params[i] != to_float(to_bf16(master[i]));
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("param store: fp32 parameters are their own master, evaluation has no state") {
    const ParamTable table = make_gpt2_param_table(tiny());
    std::int64_t elements = 0;
    for (const ParamGroup& group : table.groups)
        elements += group.numel;
    const auto bytes = [&](const ParamStoreOptions& options) {
        return plan_param_store(table, options).arena.size_bytes();
    };
    CHECK(bytes({.params = DType::f32, .grads = DType::f32}) == 16 * elements);
    CHECK(bytes({.params = DType::bf16, .grads = DType::f32}) == 18 * elements);
    CHECK(bytes({.params = DType::bf16, .grads = DType::bf16}) == 16 * elements);
    CHECK(bytes({.params = DType::f32, .with_grads = false, .with_optimizer = false}) ==
          4 * elements);
}

TEST_CASE("param store: ranges outside a tensor and gradients that are not there are refused") {
    const auto context = Context::make_cpu();
    const ParamTable table = make_gpt2_param_table(tiny());
    ParamStore store(*context, table, {.with_grads = false, .with_optimizer = false});
    float value = 0.0F;
    CHECK_THROWS_WITH_AS(store.read(table.find("lnfw"), 128, 1, &value),
                         "parameter lnfw: elements [128, 129) of 128", Error);
    CHECK_THROWS_WITH_AS(store.before_backward(context->compute_stream(), 0),
                         doctest::Contains("store without gradients"), Error);
}
