// GroupHooks that poison what the model must not touch: a group's parameters are NaN outside the
// time between before_* and after_*, and every call is recorded. Proves that the model keeps no
// view.
#pragma once

#include <string>
#include <vector>

#include "engine/train/param_store.h"

namespace ingot::test {

class CheckedHooks : public GroupHooks {
  public:
    // Wraps a store whose params were written; takes a copy of them.
    CheckedHooks(Context& context, ParamStore& store);

    ConstTensor before_forward(Stream stream, int group) override;
    void after_forward(Stream stream, int group) override;
    Backward before_backward(Stream stream, int group) override;
    void after_backward(Stream stream, int group, bool is_last_use) override;

    const std::vector<std::string>& calls() const { return calls_; }

  private:
    void open(Stream stream, int group);
    void close(Stream stream, int group);

    ParamStore& store_;
    std::vector<Buffer> copies_;  // a group's parameters
    std::vector<int> open_;       // how many users a group has at the moment
    std::vector<std::string> calls_;
};

}  // namespace ingot::test
