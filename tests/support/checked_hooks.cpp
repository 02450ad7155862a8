#include "tests/support/checked_hooks.h"

#include <limits>

#include "kernels/cast.h"

namespace ingot::test {

CheckedHooks::CheckedHooks(Context& context, ParamStore& store)
    : store_(store), open_(static_cast<std::size_t>(store.num_groups()), 0) {
    const Stream stream = context.compute_stream();
    for (int g = 0; g < store.num_groups(); ++g) {
        const Tensor params = store.params(g);
        copies_.emplace_back(context, params.size_bytes(), "copy of a group");
        copy(stream, copies_.back().tensor(params.dtype, {params.numel()}), params);
        fill(stream, {.out = params, .value = std::numeric_limits<float>::quiet_NaN()});
    }
    stream.synchronize();
}

void CheckedHooks::open(Stream stream, int group) {
    const Tensor params = store_.params(group);
    ++open_.at(static_cast<std::size_t>(group));
    copy(stream, params,
         copies_.at(static_cast<std::size_t>(group)).tensor(params.dtype, {params.numel()}));
}

void CheckedHooks::close(Stream stream, int group) {
    if (--open_.at(static_cast<std::size_t>(group)) > 0) return;
    fill(stream, {.out = store_.params(group), .value = std::numeric_limits<float>::quiet_NaN()});
}

ConstTensor CheckedHooks::before_forward(Stream stream, int group) {
    calls_.push_back(str("before_forward ", group));
    open(stream, group);
    return store_.before_forward(stream, group);
}

void CheckedHooks::after_forward(Stream stream, int group) {
    calls_.push_back(str("after_forward ", group));
    store_.after_forward(stream, group);
    close(stream, group);
}

GroupHooks::Backward CheckedHooks::before_backward(Stream stream, int group) {
    calls_.push_back(str("before_backward ", group));
    open(stream, group);
    return store_.before_backward(stream, group);
}

void CheckedHooks::after_backward(Stream stream, int group, bool is_last_use) {
    calls_.push_back(str("after_backward ", group, is_last_use ? " last" : ""));
    store_.after_backward(stream, group, is_last_use);
    close(stream, group);
}

}  // namespace ingot::test
