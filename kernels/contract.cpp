#include "kernels/contract.h"

namespace ingot::contract {

void require_on_device(Stream stream, const ConstTensor& tensor, const char* what) {
    ENSURE(tensor.data != nullptr || tensor.numel() == 0, "op.missing", what,
           " is a null view; pass memory of shape ", tensor.shape_string());
    ENSURE(tensor.device == stream.device(), "op.device", what, " ", tensor.shape_string(),
           " lies on ", name_of(tensor.device), ", the stream on ", name_of(stream.device()));
}

void require_shape(const char* code,
                   const ConstTensor& tensor,
                   std::initializer_list<std::int64_t> dims,
                   const char* what) {
    const ConstTensor wanted = make_tensor(tensor.data, tensor.dtype, dims, tensor.device);
    ENSURE(tensor.same_shape(wanted), code, what, " is ", tensor.shape_string(), ", must be ",
           wanted.shape_string());
}

void require_dtype(const char* code, const ConstTensor& tensor, DType dtype, const char* what) {
    ENSURE(tensor.dtype == dtype, code, what, " is ", name_of(tensor.dtype), ", must be ",
           name_of(dtype));
}

void require_float(const char* code, const ConstTensor& tensor, const char* what) {
    ENSURE(tensor.dtype == DType::f32 || tensor.dtype == DType::bf16, code, what, " is ",
           name_of(tensor.dtype), ", must be f32 or bf16");
}

void require_row(const char* code, const ConstTensor& tensor, const char* what) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    ENSURE(tensor.dim(-1) <= kMost, code, what, " is ", tensor.shape_string(), ", a row of ",
           tensor.dim(-1), " elements, must have at most ", kMost);
}

void require_scratch(const char* code,
                     Stream stream,
                     const ConstTensor& scratch,
                     std::int64_t bytes,
                     const char* what) {
    if (bytes == 0) return;
    require_on_device(stream, scratch, what);
    constexpr std::uintptr_t kAlignBytes = 16;  // of the widest access to it
    const std::uintptr_t rest = reinterpret_cast<std::uintptr_t>(scratch.data) % kAlignBytes;
    ENSURE(rest == 0, code, what, " starts ", rest, " bytes past a multiple of ", kAlignBytes,
           " bytes; allocate it from an arena");
    ENSURE(scratch.size_bytes() >= bytes, code, what, " has ", scratch.size_bytes(), " bytes, ",
           bytes, " are needed");
}

}  // namespace ingot::contract
