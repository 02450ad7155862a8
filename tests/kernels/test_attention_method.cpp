// Goal: the method of a run's attention is chosen by rule, refused with device, dtype and head size
// where it does not apply, and is what a call runs; the workspace of cuDNN is foreseen. Method: the
// table of rules, texts, bits against the path called directly (on a GPU), and what cuDNN 9.19
// answered for shapes of an H200.
#include <doctest/doctest.h>

#include "kernels/attention_general.h"
#include "kernels/attention_method.h"
#include "tests/support/attention_tensors.h"
#include "tests/support/device_matrix.h"
#include "tests/support/test_tensor.h"

using namespace ingot;
using namespace ingot::test;

namespace {

using Method = AttentionMethod;

AttentionShape shape_of(DType dtype, int head_size) {
    return {2, 8, 4, 2, head_size, dtype};
}

Method chosen(Method wanted, Device device, DType dtype, int head_size) {
    return choose_attention(wanted, device, shape_of(dtype, head_size)).method;
}

doctest::String refused(Method wanted, Device device, DType dtype, int head_size) {
    try {
        choose_attention(wanted, device, shape_of(dtype, head_size));
    } catch (const Error& error) {
        CHECK(std::string(error.code()) == "attention.method");
        return error.what();
    }
    return "not refused";
}

constexpr AttentionSize kSize{2, 150, 4, 2, 64};

AttentionTensors tensors(Context& context, DType dtype = DType::bf16) {
    return {context, dtype, kSize, attention_inputs(kSize, 1.0F)};
}

std::int64_t estimate(AttentionSize s, bool deterministic, bool with_backward = true) {
    return estimate_attention_workspace_bytes({.method = Method::cudnn,
                                               .shape = s.attention(DType::bf16),
                                               .scale = s.scale(),
                                               .with_backward = with_backward,
                                               .deterministic = deterministic});
}

}  // namespace

TEST_CASE("attention method: auto is own on CUDA in bf16 with head size 64 or 128, else general") {
    for (const int head_size : {8, 32, 64, 96, 128, 256}) {
        const bool is_own = head_size == 64 || head_size == 128;
        CHECK(chosen(Method::automatic, Device::cuda, DType::bf16, head_size) ==
              (is_own ? Method::own : Method::general));
        CHECK(chosen(Method::automatic, Device::cuda, DType::f32, head_size) == Method::general);
        CHECK(chosen(Method::automatic, Device::cpu, DType::bf16, head_size) == Method::general);
        for (const Device device : {Device::cpu, Device::cuda}) {
            CHECK(chosen(Method::general, device, DType::bf16, head_size) == Method::general);
        }
    }
    CHECK(chosen(Method::own, Device::cuda, DType::bf16, 128) == Method::own);
    CHECK(chosen(Method::cudnn, Device::cuda, DType::bf16, 80) == Method::cudnn);
    CHECK(choose_attention(Method::automatic, Device::cuda, shape_of(DType::bf16, 80)).why ==
          "flash attention takes bf16 and head sizes 64 and 128, not bf16 and 80");
}

TEST_CASE("attention method: what does not apply is refused with device, dtype and head size") {
    CHECK(refused(Method::own, Device::cpu, DType::bf16, 64) ==
          "model.attention = own: flash attention needs CUDA, bf16 and head size 64 or 128, but "
          "this run is on cpu in bf16 with head size 64; use model.attention=auto");
    CHECK(refused(Method::own, Device::cuda, DType::f32, 64) ==
          doctest::Contains("but this run is on cuda in f32 with head size 64"));
    CHECK(refused(Method::own, Device::cuda, DType::bf16, 96) ==
          doctest::Contains("on cuda in bf16 with head size 96"));
    CHECK(refused(Method::cudnn, Device::cpu, DType::bf16, 64) ==
          "model.attention = cudnn: cuDNN's attention needs CUDA and bf16, but this run is on cpu "
          "in bf16 with head size 64; use model.attention=auto");
    CHECK(refused(Method::cudnn, Device::cuda, DType::f32, 64) ==
          doctest::Contains("this run is on cuda in f32"));
}

TEST_CASE("attention method: names are those of the configuration") {
    for (const Method method : {Method::automatic, Method::own, Method::general, Method::cudnn}) {
        CHECK(attention_method_from_name(name_of(method)) == method);
    }
    CHECK_THROWS_WITH_AS(attention_method_from_name("flash"),
                         "model.attention = flash; use auto, own, general or cudnn", Error);
}

TEST_CASE("attention method: the CPU refuses own and cudnn in a call and in a preparation") {
    const auto context = Context::make_cpu();
    const AttentionTensors f = tensors(*context);
    const Stream stream = context->compute_stream();
    CHECK_THROWS_WITH_AS(attention_forward(stream, f.forward(Method::own)),
                         "attention_forward: method own on the CPU, which has general alone; use "
                         "auto or general",
                         Error);
    CHECK_THROWS_WITH_AS(attention_backward(stream, f.backward(Method::cudnn)),
                         doctest::Contains("attention_backward: method cudnn on the CPU"), Error);
    attention_forward(stream, f.forward(Method::automatic));
    const auto automatic = f.out.bytes();
    attention_forward(stream, f.forward(Method::general));
    CHECK(f.out.bytes() == automatic);

    AttentionPreparation preparation{Method::automatic, kSize.attention(DType::bf16), 1.0F, true,
                                     true};
    CHECK_NOTHROW(prepare_attention(*context, preparation));
    for (const Method method : {Method::own, Method::cudnn}) {
        preparation.method = method;
        CHECK_THROWS_WITH_AS(prepare_attention(*context, preparation),
                             doctest::Contains("but this run is on cpu in bf16"), Error);
    }
    CHECK(attention_workspace_bytes(*context) == 0);
}

TEST_CASE("attention method: a build or machine without cuDNN says what to install") {
    CHECK(require_attention_library(Method::own).empty());
    try {
        const std::string library = require_attention_library(Method::cudnn);
        CHECK(kHasCudnn);
        CHECK(library.rfind("cuDNN 9.", 0) == 0);
    } catch (const Error& error) {
        const std::string code = error.code();
        CHECK(code == (kHasCudnn ? "attention.cudnn_library" : "attention.cudnn_build"));
        const doctest::String text = error.what();
        CHECK(text == doctest::Contains("model.attention = cudnn"));
        CHECK(text == doctest::Contains(kHasCudnn ? "libcudnn.so.9" : "tools/setup.sh venv cudnn"));
        CHECK(text == doctest::Contains("use model.attention=auto"));
    }
}

TEST_CASE("attention method: a call on CUDA runs the path that it names") {
    if constexpr (kHasCuda) {
        if (!has_gpu()) return;
        const auto context = Context::make_cuda(0);
        const Stream stream = context->compute_stream();
        const AttentionTensors f = tensors(*context);
        cuda::general_attention_forward(stream, f.forward(Method::automatic));
        cuda::general_attention_backward(stream, f.backward(Method::automatic));
        const auto out = f.out.bytes();
        const auto dqkv = f.dqkv.bytes();
        attention_forward(stream, f.forward(Method::general));
        attention_backward(stream, f.backward(Method::general));
        CHECK(f.out.bytes() == out);
        CHECK(f.dqkv.bytes() == dqkv);
        attention_forward(stream, f.forward(Method::own));
        const auto own = f.out.bytes();
        CHECK(own != out);  // P is rounded to bf16 on tensor cores
        attention_forward(stream, f.forward(Method::automatic));
        CHECK(f.out.bytes() == own);
        const AttentionTensors in_f32 = tensors(*context, DType::f32);
        CHECK_THROWS_WITH_AS(attention_forward(stream, in_f32.forward(Method::own)),
                             doctest::Contains("not f32 and 64; use the general path"), Error);
    }
}

TEST_CASE("attention method: cuDNN's workspace is foreseen as cuDNN 9.19 asks for it on an H200") {
    CHECK(estimate({64, 1024, 12, 12, 64}, true) == 1613758720);
    CHECK(estimate({16, 1024, 25, 25, 64}, true) == 840499456);
    CHECK(estimate({8, 2048, 32, 8, 64}, true) == 2283798784);
    CHECK(estimate({32, 1024, 14, 2, 64}, true) == 1058799872);
    CHECK(estimate({4, 2048, 32, 32, 128}, true) == 1074790656);
    CHECK(estimate({2, 8192, 32, 8, 128}, true) == 8860467456);
    CHECK(estimate({2, 37, 4, 2, 24}, true) == 160928);
    CHECK(estimate({64, 1024, 12, 12, 64}, false) >= 204472576);        // asked on an H200
    CHECK(estimate({64, 1024, 12, 12, 64}, false) >= 405799040 - 256);  // on an A100
    CHECK(estimate({64, 1024, 12, 12, 64}, true, false) == 256);
    CHECK(estimate_attention_workspace_bytes(
              {Method::own, shape_of(DType::bf16, 64), 0.125F, true, true}) == 0);
}
