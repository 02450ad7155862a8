#include "kernels/lm_head.h"

#include <algorithm>

#include "engine/core/op_range.h"
#include "kernels/contract.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"

namespace ingot {
namespace {

void check(Stream stream, const LmHeadLoss& a) {
    contract::require_on_device(stream, a.inp, "lm_head_loss: inp");
    contract::require_on_device(stream, a.weight, "lm_head_loss: weight");
    contract::require_on_device(stream, a.logits, "lm_head_loss: logits");
    contract::require_on_device(stream, a.losses, "lm_head_loss: losses");
    contract::require_on_device(stream, a.targets, "lm_head_loss: targets");
    ENSURE(a.inp.num_dims == 2, "lm_head.shape", "lm_head_loss: inp is ", a.inp.shape_string(),
           ", must be (N, C)");
    const std::int64_t N = a.inp.dim(0);
    const std::int64_t C = a.inp.dim(1);
    ENSURE(a.weight.num_dims == 2 && a.weight.dim(1) == C, "lm_head.shape",
           "lm_head_loss: weight is ", a.weight.shape_string(), ", must be (Vp, C) with C = ", C);
    const std::int64_t Vp = a.weight.dim(0);
    ENSURE(a.logits.num_dims == 2 && a.logits.dim(0) >= 1 && a.logits.dim(1) == Vp, "lm_head.shape",
           "lm_head_loss: logits is ", a.logits.shape_string(),
           ", must be (chunk, Vp) with chunk >= 1 and Vp = ", Vp);
    contract::require_shape("lm_head.shape", a.losses, {N}, "lm_head_loss: losses");
    contract::require_shape("lm_head.shape", a.targets, {N}, "lm_head_loss: targets");
    const bool has_dinp = static_cast<bool>(a.dinp);
    const bool has_dweight = static_cast<bool>(a.dweight);
    ENSURE(has_dinp == has_dweight, "lm_head.shape", "lm_head_loss: ",
           has_dinp ? "dinp is given but dweight is a null view"
                    : "dweight is given but dinp is a null view",
           "; pass both, or neither for the loss alone");
    if (!has_dinp) return;
    contract::require_on_device(stream, a.dinp, "lm_head_loss: dinp");
    contract::require_on_device(stream, a.dweight, "lm_head_loss: dweight");
    contract::require_shape("lm_head.shape", a.dinp, {N, C}, "lm_head_loss: dinp");
    contract::require_shape("lm_head.shape", a.dweight, {Vp, C}, "lm_head_loss: dweight");
}

// Rows [begin, end), which fit into logits.
void run_chunk(Stream stream, const LmHeadLoss& a, std::int64_t begin, std::int64_t end) {
    const bool with_gradients = static_cast<bool>(a.dinp);
    const Tensor logits = a.logits.slice(0, end - begin);
    const ConstTensor inp = a.inp.slice(begin, end);
    matmul_forward(stream, {.out = logits,
                            .pre_gelu = Tensor{},
                            .inp = inp,
                            .weight = a.weight,
                            .bias = ConstTensor{}});
    cross_entropy(stream, {.losses = a.losses.slice(begin, end),
                           .logits = logits,
                           .targets = a.targets.slice(begin, end),
                           .vocab_size = a.vocab_size,
                           .write_dlogits = with_gradients});
    if (!with_gradients) return;
    matmul_dgrad(stream, {.dinp = a.dinp.slice(begin, end),
                          .dout = logits,
                          .weight = a.weight,
                          .pre_gelu = ConstTensor{}});
    matmul_wgrad(stream, {.dweight = a.dweight,
                          .dout = logits,
                          .inp = inp,
                          .accumulate = a.accumulate || begin > 0});
}

}  // namespace

void lm_head_loss(Stream stream, const LmHeadLoss& args) {
    check(stream, args);
    const OpRange range(stream, "lm_head_loss", {});
    const std::int64_t N = args.inp.dim(0);
    const std::int64_t chunk = args.logits.dim(0);
    // Once for N = 0: dweight may have to be overwritten.
    for (std::int64_t begin = 0; begin == 0 || begin < N; begin += chunk)
        run_chunk(stream, args, begin, std::min(begin + chunk, N));
}

}  // namespace ingot
