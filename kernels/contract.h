// Contract checks that ops share. Each throws ingot::Error naming the op, the tensor, what it is
// and what it must be. `what` is "op: tensor", e.g. "layernorm_forward: weight".
#pragma once

#include <initializer_list>

#include "engine/core/device.h"

namespace ingot::contract {

// The tensor is present and lies on the stream's device (op.missing, op.device).
void require_on_device(Stream stream, const ConstTensor& tensor, const char* what);

// The tensor has exactly these dimensions (code).
void require_shape(const char* code,
                   const ConstTensor& tensor,
                   std::initializer_list<std::int64_t> dims,
                   const char* what);

// The tensor has this dtype (code).
void require_dtype(const char* code, const ConstTensor& tensor, DType dtype, const char* what);

// The dtype is f32 or bf16 (code).
void require_float(const char* code, const ConstTensor& tensor, const char* what);

// A row, which is the last dimension, has at most 2^30 elements: kernels count inside a row in 32
// bits (code).
void require_row(const char* code, const ConstTensor& tensor, const char* what);

// The scratch is on the device, starts at a multiple of 16 bytes and holds at least `bytes` (code);
// bytes = 0 allows a null view.
void require_scratch(const char* code,
                     Stream stream,
                     const ConstTensor& scratch,
                     std::int64_t bytes,
                     const char* what);

}  // namespace ingot::contract
