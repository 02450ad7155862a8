#include "engine/core/tensor.h"

namespace ingot {
namespace {

void set_dims(TensorShape& shape, std::initializer_list<std::int64_t> dims) {
    ENSURE(dims.size() <= static_cast<std::size_t>(kMaxDims), "tensor.dims",
           "tensor: ", dims.size(), " dimensions, at most ", kMaxDims, " are supported");
    shape.num_dims = 0;
    for (const std::int64_t dim : dims) {
        ENSURE(dim >= 0, "tensor.dims", "tensor: dimension ", shape.num_dims, " = ", dim,
               " is negative");
        shape.dims[shape.num_dims++] = dim;
    }
}

void check_dtype(const TensorShape& shape, DType wanted) {
    ENSURE(shape.dtype == wanted, "tensor.dtype", "tensor ", shape.shape_string(), " is read as ",
           name_of(wanted));
}

template <class View>
View slice_of(const View& view, std::int64_t begin, std::int64_t end) {
    ENSURE(view.num_dims > 0 && 0 <= begin && begin <= end && end <= view.dims[0], "tensor.slice",
           "slice [", begin, ", ", end, ") of tensor ", view.shape_string(),
           "; the range must lie inside the first dimension");
    View result = view;
    const std::int64_t row_bytes = view.dims[0] == 0 ? 0 : view.size_bytes() / view.dims[0];
    using Byte = std::conditional_t<std::is_same_v<View, Tensor>, char, const char>;
    result.data = static_cast<Byte*>(view.data) + begin * row_bytes;
    result.dims[0] = end - begin;
    return result;
}

template <class View>
View view_of(const View& view, std::initializer_list<std::int64_t> dims) {
    View result = view;
    set_dims(result, dims);
    ENSURE(result.numel() == view.numel(), "tensor.view", "tensor ", view.shape_string(),
           " viewed as ", result.shape_string(), ": the number of elements differs");
    return result;
}

}  // namespace

const char* name_of(Device device) {
    return device == Device::cpu ? "cpu" : "cuda";
}

std::int64_t TensorShape::numel() const {
    std::int64_t count = 1;
    for (int i = 0; i < num_dims; ++i)
        count *= dims[i];
    return count;
}

std::int64_t TensorShape::dim(int index) const {
    const int i = index < 0 ? index + num_dims : index;
    ENSURE(i >= 0 && i < num_dims, "tensor.dim", "dimension ", index, " of tensor ",
           shape_string());
    return dims[i];
}

std::int64_t TensorShape::rows() const {
    const std::int64_t last = dim(-1);
    return last == 0 ? 0 : numel() / last;
}

std::string TensorShape::shape_string() const {
    std::string text = "(";
    for (int i = 0; i < num_dims; ++i)
        text += str(i == 0 ? "" : ", ", dims[i]);
    return text + ") " + name_of(dtype);
}

bool TensorShape::same_shape(const TensorShape& other) const {
    if (num_dims != other.num_dims) return false;
    for (int i = 0; i < num_dims; ++i) {
        if (dims[i] != other.dims[i]) return false;
    }
    return true;
}

void ConstTensor::check_type(DType wanted) const {
    check_dtype(*this, wanted);
}
void Tensor::check_type(DType wanted) const {
    check_dtype(*this, wanted);
}

Tensor::operator ConstTensor() const {
    ConstTensor result;
    static_cast<TensorShape&>(result) = *this;
    result.data = data;
    return result;
}

ConstTensor ConstTensor::slice(std::int64_t begin, std::int64_t end) const {
    return slice_of(*this, begin, end);
}
Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
    return slice_of(*this, begin, end);
}
ConstTensor ConstTensor::view(std::initializer_list<std::int64_t> new_dims) const {
    return view_of(*this, new_dims);
}
Tensor Tensor::view(std::initializer_list<std::int64_t> new_dims) const {
    return view_of(*this, new_dims);
}

Tensor make_tensor(void* data,
                   DType dtype,
                   std::initializer_list<std::int64_t> dims,
                   Device device) {
    Tensor result;
    set_dims(result, dims);
    result.dtype = dtype;
    result.device = device;
    result.data = data;
    return result;
}

ConstTensor make_tensor(const void* data,
                        DType dtype,
                        std::initializer_list<std::int64_t> dims,
                        Device device) {
    return make_tensor(const_cast<void*>(data), dtype, dims, device);
}

}  // namespace ingot
