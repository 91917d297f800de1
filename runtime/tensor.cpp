#include "runtime/tensor.h"

#include <algorithm>

#include "runtime/device_source.h"
#include "runtime/memory_ops.h"
#include "runtime/overlap.h"

namespace duet {
namespace {

// Every size is 0 or more, and no product of sizes overflows: not even in an empty tensor, whose
// strides are products of its other sizes. Returns the bytes.
std::size_t checked_bytes(const char* op, const Shape& shape, DType dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (const std::int64_t d : shape) {
    check(d >= 0, ErrorKind::shape, op, ": a size is negative: got ", shape,
          ", expected sizes of 0 or more; check the shape");
    check(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(d, 1), &bytes), ErrorKind::shape,
          op, ": the tensor is too large: got ", shape, " of ", dtype,
          ", expected less than 2^63 bytes; use smaller sizes");
    empty = empty || d == 0;
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor t;
  t.storage_ = std::make_shared<Storage>(checked_bytes("tensor", shape, dtype), device);
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0.0, dtype, device);
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  fill(t, value);
  return t;
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape_[i] == 0) return true;
    if (shape_[i] != 1 && strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

void* Tensor::raw_data() const {
  auto* base = static_cast<std::byte*>(storage_->data());
  return base == nullptr ? nullptr : base + offset_ * static_cast<std::int64_t>(size_of(dtype_));
}

void* Tensor::typed_data(DType wanted) const {
  check(wanted == dtype_, ErrorKind::dtype, "data: the tensor is ", dtype_, ", asked for ", wanted);
  check(device().type == DeviceType::cpu, ErrorKind::device, "data: the tensor lies on ", device(),
        ", expected cpu; copy it there first");
  return raw_data();
}

ConstView Tensor::view() const { return {raw_data(), dtype_, shape_, strides_}; }

View Tensor::mutable_view() {
  check(!overlaps_itself(shape_, strides_), ErrorKind::shape,
        "write: elements of the tensor share bytes: got shape ", shape_, " with strides ", strides_,
        ", expected each element in its own place; copy it to a contiguous tensor first");
  ++storage_->version;
  return {raw_data(), dtype_, shape_, strides_};
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  check(shape.ndim() == strides.ndim(), ErrorKind::shape, "as_strided: got ", shape.ndim(),
        " sizes and ", strides.ndim(), " strides, expected as many of each");
  checked_bytes("as_strided", shape, dtype_);
  // The lowest and the highest element the window reaches.
  std::int64_t low = offset, high = offset;
  bool fits = offset >= 0;
  for (int i = 0; i < shape.ndim(); ++i) {
    std::int64_t reach = 0;
    fits = fits &&
           !__builtin_mul_overflow(std::max<std::int64_t>(shape[i] - 1, 0), strides[i], &reach);
    std::int64_t& edge = reach < 0 ? low : high;
    fits = fits && !__builtin_add_overflow(edge, reach, &edge);
  }
  const auto capacity = static_cast<std::int64_t>(storage_->bytes() / size_of(dtype_));
  fits = fits && (shape.numel() == 0 ? offset <= capacity : low >= 0 && high < capacity);
  check(fits, ErrorKind::shape, "as_strided: the window leaves the storage: got ", shape,
        " with strides ", strides, " at offset ", offset, ", expected to stay within ", capacity,
        " elements; check the strides");
  Tensor t = detach();
  t.shape_ = shape;
  t.strides_ = strides;
  t.offset_ = offset;
  return t;
}

Tensor Tensor::slice_view(int dim, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const int d = normalize_dim(dim, ndim(), "slice");
  check(0 <= begin && begin <= end && end <= shape_[d] && step >= 1, ErrorKind::index,
        "slice: range does not fit: got [", begin, ", ", end, ") step ", step, " in dim ", d,
        " of ", shape_, ", expected 0 <= begin <= end <= ", shape_[d], " and step >= 1");
  Tensor t = detach();
  const std::int64_t length = end - begin;
  t.shape_[d] = length / step + (length % step != 0 ? 1 : 0);
  if (t.shape_[d] > 1) t.strides_[d] = strides_[d] * step;  // else no step is taken
  t.offset_ += begin * strides_[d];
  return t;
}

Tensor Tensor::transpose_view(int a, int b) const {
  const int da = normalize_dim(a, ndim(), "transpose");
  const int db = normalize_dim(b, ndim(), "transpose");
  Tensor t = detach();
  std::swap(t.shape_[da], t.shape_[db]);
  std::swap(t.strides_[da], t.strides_[db]);
  return t;
}

Tensor Tensor::expand_view(const Shape& shape) const {
  const int extra = shape.ndim() - ndim();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < ndim(); ++i) {
    fits = shape_[i] == shape[i + extra] || shape_[i] == 1;
  }
  check(fits, ErrorKind::shape, "expand: shape does not fit: got ", shape_,
        ", expected a shape that broadcasts to ", shape, "; sizes must be equal or 1");
  checked_bytes("expand", shape, dtype_);
  Tensor t = detach();
  t.shape_ = shape;
  t.strides_ = Dims::filled(shape.ndim(), 0);
  for (int i = 0; i < ndim(); ++i) {
    if (shape_[i] == shape[i + extra]) t.strides_[i + extra] = strides_[i];
  }
  return t;
}

Tensor Tensor::reshape_view(const Shape& shape) const {
  Shape target = shape;
  int inferred = -1;
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] == -1 && inferred < 0) {
      inferred = i;
      target[i] = 1;
    }
  }
  checked_bytes("reshape", target, dtype_);
  if (inferred >= 0) target[inferred] = target.numel() > 0 ? numel() / target.numel() : 0;
  check(target.numel() == numel(), ErrorKind::shape, "reshape: element counts differ: got ", shape_,
        " (", numel(), "), expected ", shape, "; check the sizes");
  check(is_contiguous(), ErrorKind::shape, "reshape: the tensor has gaps: shape ", shape_,
        ", strides ", strides_, "; copy it to a contiguous tensor first");
  Tensor t = detach();
  t.shape_ = target;
  t.strides_ = contiguous_strides(target);
  return t;
}

double Tensor::item() const {
  check(defined() && numel() == 1, ErrorKind::shape, "item: got ", shape_,
        ", expected one element; reduce the tensor first");
  check(device().type != DeviceType::meta, ErrorKind::device, "item: the tensor lies on ", device(),
        ", expected cpu or cuda; on meta there are no values");
  return visit_any(dtype_, [&]<class T>(TypeTag<T>) {
    T value{};
    if (device().type == DeviceType::cpu) {
      value = *static_cast<const T*>(raw_data());
    } else {
      copy_bytes(&value, kCpu, raw_data(), device(), sizeof value);
    }
    if constexpr (sizeof(T) == 2) {
      return static_cast<double>(static_cast<float>(value));
    } else {
      return static_cast<double>(value);
    }
  });
}

}  // namespace duet
