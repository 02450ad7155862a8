#include "engine/train/text_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/rng.h"

namespace ingot {

std::int64_t sample_token(const std::vector<float>& logits,
                          const SampleOptions& options,
                          double uniform) {
    ENSURE(std::isfinite(options.temperature) && options.temperature >= 0.0, "sample.temperature",
           "sample.temperature = ", options.temperature, ", must be 0 (greedy) or above");
    // NaN and -inf are never drawn.
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (std::isfinite(logits[i])) ids.push_back(static_cast<std::int64_t>(i));
    }
    ENSURE(!ids.empty(), "sample.logits", "sample: none of ", logits.size(),
           " logits is finite; the model has diverged");
    const auto before = [&logits](std::int64_t a, std::int64_t b) {
        const float x = logits[static_cast<std::size_t>(a)];
        const float y = logits[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    };
    const std::int64_t best = *std::min_element(ids.begin(), ids.end(), before);
    if (options.temperature == 0.0) return best;
    if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(ids.size())) {
        std::nth_element(ids.begin(), ids.begin() + options.top_k, ids.end(), before);
        ids.resize(static_cast<std::size_t>(options.top_k));
        std::sort(ids.begin(), ids.end());
    }
    std::vector<double> cumulative(ids.size());
    double total = 0.0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const double above_best = static_cast<double>(logits[static_cast<std::size_t>(ids[i])]) -
                                  logits[static_cast<std::size_t>(best)];
        total += std::exp(above_best / options.temperature);
        cumulative[i] = total;
    }
    const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * total);
    const auto index = std::min<std::ptrdiff_t>(chosen - cumulative.begin(),
                                                static_cast<std::ptrdiff_t>(ids.size()) - 1);
    return ids[static_cast<std::size_t>(index)];
}

std::vector<std::int32_t> generate(Context& context,
                                   Decoder& decoder,
                                   ParamStore& store,
                                   Tensor window,
                                   const TextRequest& request,
                                   const std::function<void(std::int32_t)>& on_token) {
    ENSURE(!request.prompt.empty(), "sample.prompt", "sample: the prompt has no token");
    const Stream stream = context.compute_stream();
    const std::int64_t longest = decoder.options().T;
    const std::int64_t V = decoder.config().vocab_size;
    std::vector<float> logits(static_cast<std::size_t>(decoder.config().padded_vocab_size()));
    std::vector<std::int32_t> text = request.prompt;
    for (std::int64_t i = 0; i < request.num_tokens; ++i) {
        const std::int64_t length =
            std::min<std::int64_t>(longest, static_cast<std::int64_t>(text.size()));
        const std::int32_t* begin = text.data() + (static_cast<std::int64_t>(text.size()) - length);
        const Tensor inputs = window.slice(0, length).view({1, length});
        copy(stream, inputs, make_tensor(begin, DType::i32, {1, length}, Device::cpu));
        stream.synchronize();
        decoder.forward(stream, store, inputs);
        logits.resize(static_cast<std::size_t>(decoder.config().padded_vocab_size()));
        read_floats(context, decoder.logits(stream, store, length - 1, 1), logits.data());
        logits.resize(static_cast<std::size_t>(V));
        const double uniform =
            philox_uniform(request.seed, random_stream(RandomUse::sampling, request.stream),
                           static_cast<std::uint64_t>(i));
        const std::int64_t id = sample_token(logits, request.options, uniform);
        text.push_back(static_cast<std::int32_t>(id));
        if (on_token) on_token(static_cast<std::int32_t>(id));
        if (id == request.stop_id) break;
    }
    return {text.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), text.end()};
}

}  // namespace ingot
