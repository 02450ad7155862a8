#include "engine/core/dtype.h"

namespace ingot {

const char* name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::bf16:
            return "bf16";
        case DType::i32:
            return "i32";
        case DType::u8:
            return "u8";
    }
    return "invalid";
}

std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return 4;
        case DType::bf16:
            return 2;
        case DType::i32:
            return 4;
        case DType::u8:
            return 1;
    }
    return 0;
}

DType dtype_from_name(const char* name) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
        if (std::strcmp(name, name_of(dtype)) == 0) return dtype;
    }
    fail("dtype.unknown", "dtype \"", name, "\" is unknown; use f32, bf16, i32 or u8");
}

}  // namespace ingot
