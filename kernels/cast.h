// Conversion between f32 and bf16 (round to nearest, ties to even) and constant fill. Any shape,
// numel may exceed 2^31. Errors: cast.shape, cast.dtype, op.device, op.missing.
#pragma once

#include "engine/core/device.h"

namespace ingot {

struct Cast {
    Tensor out;       // f32 or bf16
    ConstTensor inp;  // f32 or bf16, as many elements
};
void cast(Stream stream, const Cast& args);

struct Fill {
    Tensor out;   // f32 or bf16
    float value;  // rounded to the dtype of out
};
void fill(Stream stream, const Fill& args);

namespace cpu {
void cast(const Cast& args);
void fill(const Fill& args);
}  // namespace cpu

namespace cuda {
void cast(Stream stream, const Cast& args);
void fill(Stream stream, const Fill& args);
}  // namespace cuda

}  // namespace ingot
