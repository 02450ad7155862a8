// How sharding and the optimizer plug into the model without the model knowing about ranks.
//
// The model asks for a parameter group before it uses it and gives it back afterwards; the views
// are valid in between only and must not be kept. Group numbers are those of model/param_table.h.
//
// A tied embedding belongs to group 0 and is used by the head as well. In the backward pass group 0
// is therefore asked for twice: by the head, which writes dwte, and by the embedding, which adds to
// dwte and writes dwpe; `is_last_use` tells the hooks when its gradients are complete.
// Recomputation happens between before_backward and after_backward and calls no forward hook.
#pragma once

#include "engine/core/device.h"

namespace ingot {

class GroupHooks {
  public:
    struct Backward {
        ConstTensor params;  // flat, the group's numel
        Tensor grads;        // flat, the same layout, f32 or bf16
        bool accumulate;     // false in the first micro-step: overwrite
    };

    virtual ~GroupHooks() = default;

    // The flat parameters of the group, ready on `stream`.
    virtual ConstTensor before_forward(Stream stream, int group) = 0;
    virtual void after_forward(Stream stream, int group) = 0;
    virtual Backward before_backward(Stream stream, int group) = 0;
    virtual void after_backward(Stream stream, int group, bool is_last_use) = 0;
};

}  // namespace ingot
