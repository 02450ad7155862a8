// Goal: the warm-up before step 1 leaves no trace in what a run computes.
// Method: a model with and without it, before and after one real step, compared bit by bit.
#include <algorithm>

#include <doctest/doctest.h>

#include "engine/core/op_range.h"
#include "engine/core/token_order.h"
#include "engine/train/warm_up.h"
#include "kernels/sum.h"
#include "tests/support/compare.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct Model {
    explicit Model(Context& c, DType params)
        : context(c),
          decoder(c, config(), {.B = 2, .T = 16, .dtype = params, .device = c.device()}),
          store(c, decoder.params(), {.params = params, .grads = DType::f32}),
          optimizer(c, store, {}),
          batch(c, DType::i32, {kBatchFields, 2, 16}) {
        store.initialize(5);
    }

    static DecoderConfig config() {
        DecoderConfig config = preset("gpt2-tiny");
        config.vocab_size = 100;
        return config;
    }

    WarmUp parts() { return {decoder, store, optimizer, batch}; }

    // One step on fixed tokens.
    void train() {
        const Stream stream = context.compute_stream();
        std::vector<std::int32_t> tokens(32);
        for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = static_cast<std::int32_t>(i * 7 % 100);
        const TestTensor ids(context, {2, 16}, tokens);
        const TestTensor order(context, {32, 2}, token_order(tokens));
        store.begin_micro_step(0);
        decoder.forward(stream, store, ids);
        const Tensor losses = decoder.loss_and_backward(stream, store, order, ids);
        sum(stream, {.out = optimizer.loss_sum(), .inp = losses, .accumulate = false});
        optimizer.step(stream, 1, 1e-2, 32);
        stream.synchronize();  // before the batch goes
    }

    std::vector<float> state() {
        std::vector<float> all;
        for (int g = 0; g < store.num_groups(); ++g) {
            for (const Tensor& tensor :
                 {store.params(g), store.master(g), store.m(g), store.v(g)}) {
                std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
                read_floats(context, tensor, values.data());
                all.insert(all.end(), values.begin(), values.end());
            }
        }
        return all;
    }

    Context& context;
    Decoder decoder;
    ParamStore store;
    Optimizer optimizer;
    TestTensor batch;
};

}  // namespace

TEST_CASE("warm-up: parameters, masters and moments keep their bits, and so does the first step") {
    for (const Device device : test_devices()) {
        for (const DType params : float_dtypes()) {
            CAPTURE(static_cast<int>(device));
            CAPTURE(name_of(params));
            const auto context = make_context(device);
            Model plain(*context, params);
            Model warm(*context, params);
            const Stream stream = context->compute_stream();
            warm_up_step(stream, warm.parts());
            warm_up_evaluation(stream, warm.parts());
            CHECK(warm.state() == plain.state());
            warm.train();
            plain.train();
            CHECK(warm.state() == plain.state());
            const StepResult result = warm.optimizer.result(1);
            CHECK(result.is_finite);
            CHECK(result.loss == plain.optimizer.result(1).loss);
            CHECK(result.grad_norm == plain.optimizer.result(1).grad_norm);
        }
    }
}

TEST_CASE("warm-up: it runs every op that a run uses, and later ones allocate nothing") {
    for (const Device device : test_devices()) {
        CAPTURE(static_cast<int>(device));
        const auto context = make_context(device);
        Model model(*context, DType::bf16);
        std::vector<std::string> warmed;
        {
            const OpProfile profile(*context);
            warm_up_step(context->compute_stream(), model.parts());
            warm_up_evaluation(context->compute_stream(), model.parts());
            const std::vector<OpPart> parts = profile.parts();
            for (const OpPart& part : parts)
                warmed.push_back(part.name);
        }
        const std::int64_t allocated = context->allocated_bytes();
        const OpProfile profile(*context);
        model.train();
        const std::vector<OpPart> parts = profile.parts();
        for (const OpPart& part : parts) {
            CAPTURE(part.name);
            CHECK(std::count(warmed.begin(), warmed.end(), part.name) > 0);
        }
        CHECK(context->allocated_bytes() == allocated);
    }
}
