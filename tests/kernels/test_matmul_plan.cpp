// Goal: matmul plans survive their text, a text of another GPU or library is refused, and a tuned
// matmul gives the same result as before. Method: the table on its own, without a GPU; on a GPU a
// tuning phase over small shapes, its text imported into a fresh context, bits compared.
#include <string>

#include <doctest/doctest.h>

#include "kernels/matmul.h"
#include "kernels/matmul_plan.h"
#include "kernels/matmul_plan_table.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_sizes.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

const MatmulOrigin kOrigin{"cublasLt 130100", "NVIDIA H200"};

MatmulChoices two_choices() {
    MatmulChoices choices;
    MatmulChoice timed;
    timed.is_chosen = true;
    for (std::size_t w = 0; w < timed.algorithm.size(); ++w)
        timed.algorithm[w] = 0x0123456789abcdefULL << (4 * w);
    timed.us = 12.5;
    choices[{MatmulPass::wgrad, MatmulEpilogue::none, DType::bf16, DType::f32, true, 16, 65536, 768,
             2304}] = timed;
    MatmulChoice general;
    general.is_general = true;
    general.is_chosen = true;
    choices[{MatmulPass::forward, MatmulEpilogue::gelu_bias, DType::bf16, DType::bf16, false, 2, 3,
             5, 7}] = general;
    return choices;
}

// Every product of a linear layer, once.
struct Layer {
    Layer(Context& context, std::int64_t N, std::int64_t C, std::int64_t OC)
        : inp(context, DType::bf16, {N, C}, random_values("inp", N * C)),
          weight(context, DType::bf16, {OC, C}, random_values("weight", OC * C)),
          bias(context, DType::bf16, {OC}, random_values("bias", OC)),
          dout(context, DType::bf16, {N, OC}, random_values("dout", N * OC)),
          out(context, DType::bf16, {N, OC}),
          pre_gelu(context, DType::bf16, {N, OC}),
          dinp(context, DType::bf16, {N, C}),
          dweight(context, DType::f32, {OC, C}) {}

    void run(Stream stream) const {
        matmul_forward(
            stream, {.out = out, .pre_gelu = pre_gelu, .inp = inp, .weight = weight, .bias = bias});
        matmul_dgrad(stream,
                     {.dinp = dinp, .dout = dout, .weight = weight, .pre_gelu = ConstTensor{}});
        for (const bool accumulate : {false, true}) {
            matmul_wgrad(stream,
                         {.dweight = dweight, .dout = dout, .inp = inp, .accumulate = accumulate});
        }
    }

    TestTensor inp, weight, bias, dout, out, pre_gelu, dinp, dweight;
};

}  // namespace

TEST_CASE("matmul_plan: the text of plans gives the plans back") {
    const MatmulChoices choices = two_choices();
    const std::string text = format_matmul_plans(kOrigin, choices);
    const MatmulChoices read = parse_matmul_plans(kOrigin, text);
    REQUIRE(read.size() == choices.size());
    for (const auto& [key, choice] : choices) {
        REQUIRE(read.count(key) == 1);
        const MatmulChoice& other = read.at(key);
        CHECK(other.is_general == choice.is_general);
        CHECK(other.is_chosen);
        CHECK(other.algorithm == choice.algorithm);
        CHECK(other.us == choice.us);
    }
    CHECK(format_matmul_plans(kOrigin, read) == text);
    CHECK(text.find("plan wgrad none bf16 f32 add 16 65536 768 2304 = 0123456789abcdef") !=
          std::string::npos);
}

TEST_CASE("matmul_plan: a text of another GPU or library, or a damaged one, is refused by name") {
    const std::string text = format_matmul_plans(kOrigin, two_choices());
    CHECK_THROWS_WITH_AS(parse_matmul_plans({"cublasLt 130100", "NVIDIA A100"}, text),
                         doctest::Contains("made with \"gpu NVIDIA H200\", this run has \"gpu "
                                           "NVIDIA A100\"; tune again"),
                         Error);
    CHECK_THROWS_WITH_AS(parse_matmul_plans({"cublasLt 1", "NVIDIA H200"}, text),
                         doctest::Contains("\"library cublasLt 1\""), Error);
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, "plans\n"),
                         doctest::Contains("the first line is \"plans\", must be"), Error);
    const std::string shown = "\"?[2J?" + std::string(95, 'x') + "... (5005 bytes)\", must";
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, "\x1b[2J\xff" + std::string(5000, 'x') + "\n"),
                         doctest::Contains(shown.c_str()), Error);
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, text + "plan forward none bf16\n"),
                         doctest::Contains("cannot read the line \"plan forward none bf16\""),
                         Error);
    const auto refused = [&](const char* from, const char* to, const char* message) {
        std::string changed = text;
        changed.replace(changed.find(from), std::string(from).size(), to);
        CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, changed), doctest::Contains(message),
                             Error);
    };
    refused("general 0\n", "general 0 0\n", "cannot read the line \"plan forward gelu_bias");
    refused("add 16 65536", "add 3 65536",
            "no matmul has the line \"plan wgrad none bf16 f32 add 3");
    refused("add 16 65536", "add 16 0", "alignments 2, 4, 8 or 16, sizes above 0; tune again");
    refused("bf16 f32", "bf16 i32", "types are f32 or bf16");
    refused("general 0\n", "general -1\n", "no matmul has the line \"plan forward gelu_bias");
    const std::string line = text.substr(text.find("plan forward"));
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, text + line),
                         doctest::Contains("is there twice; tune again"), Error);
    std::string short_algorithm = text;
    short_algorithm.erase(short_algorithm.find("0123456789abcdef"), 1);
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, short_algorithm),
                         doctest::Contains("cannot read the line \"plan wgrad"), Error);
    std::string unknown = text;
    unknown.replace(unknown.find("wgrad"), 5, "xgrad");
    CHECK_THROWS_WITH_AS(parse_matmul_plans(kOrigin, unknown),
                         doctest::Contains("\"xgrad\" in the line"), Error);
}

TEST_CASE("matmul_plan: tuning options out of range are refused with their values") {
    const auto context = Context::make_cpu();
    const Stream stream = context->compute_stream();
    CHECK_THROWS_WITH_AS(matmul_begin_tuning(stream, {.num_candidates = 0, .num_repeats = 5}),
                         doctest::Contains("num_candidates = 0, num_repeats = 5"), Error);
    CHECK_THROWS_WITH_AS(matmul_begin_tuning(stream, {.num_candidates = 4, .num_repeats = 0}),
                         doctest::Contains("num_repeats = 0"), Error);
    CHECK(matmul_export_plans(stream).empty());
}

TEST_CASE("matmul_plan: a run that imports the plans of a tuned one gives its bits") {
    for (const Device device : test_devices()) {
        const auto tuned = make_context(device);
        const std::int64_t N = has_small_sizes() ? 64 : 512;
        const Layer first(*tuned, N, 256, 384);
        const Layer odd(*tuned, 33, 5, 7);
        matmul_begin_tuning(tuned->compute_stream(), {.num_candidates = 8, .num_repeats = 3});
        first.run(tuned->compute_stream());
        odd.run(tuned->compute_stream());
        matmul_end_tuning(tuned->compute_stream());
        first.run(tuned->compute_stream());  // accumulated gradients of the phase are discarded
        const std::string text = matmul_export_plans(tuned->compute_stream());
        if (device == Device::cuda) CHECK(text.find("plan forward gelu_bias") != std::string::npos);

        const auto resumed = make_context(device);
        matmul_import_plans(resumed->compute_stream(), text);
        CHECK(matmul_export_plans(resumed->compute_stream()) == text);
        const Layer second(*resumed, N, 256, 384);
        second.run(resumed->compute_stream());
        CHECK(second.out.bytes() == first.out.bytes());
        CHECK(second.pre_gelu.bytes() == first.pre_gelu.bytes());
        CHECK(second.dinp.bytes() == first.dinp.bytes());
        CHECK(second.dweight.bytes() == first.dweight.bytes());
    }
}

TEST_CASE("matmul_plan: bytes that are no algorithm of the library are refused before they run") {
    for (const Device device : test_devices()) {
        if (device != Device::cuda) continue;
        const auto first = make_context(device);
        const Layer layer(*first, 64, 256, 384);
        layer.run(first->compute_stream());
        std::string text = matmul_export_plans(first->compute_stream());
        const std::string before = " = ";
        const std::size_t line = text.find("plan forward gelu_bias");
        REQUIRE(line != std::string::npos);
        const std::size_t begin = text.find(before, line) + before.size();
        text.replace(begin, 128, std::string(128, 'f'));
        const auto second = make_context(device);
        const Layer other(*second, 64, 256, 384);
        matmul_import_plans(second->compute_stream(), text);
        CHECK_THROWS_WITH_AS(
            other.run(second->compute_stream()),
            doctest::Contains("cannot run the algorithm of the line \"plan forward gelu_bias"),
            Error);
        CHECK_THROWS_WITH_AS(other.run(second->compute_stream()),
                             doctest::Contains("\" (cublasLtMatmulAlgoCheck: CUBLAS_STATUS_"),
                             Error);
    }
}
