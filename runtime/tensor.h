// Tensor: a small value handle: shape, strides and dtype over shared Storage. Copies alias.
//
//   Tensor x = Tensor::zeros({2, 3}, DType::f32);
//   Tensor row = x.slice_view(0, 1, 2);            // [1, 3], same storage
//
// Ops never write their inputs. The only ways to write are mutable_data() and mutable_view(), which
// bump the storage's version.
#pragma once

#include <memory>
#include <utility>

#include "runtime/storage.h"
#include "runtime/view.h"

namespace duet {

struct GradMeta;  // autograd/node.h; opaque here, so that runtime does not know autograd

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised, contiguous. Throws Error(shape) for a negative size or a byte count over 2^63,
  // Error(memory) when the device has no room.
  static Tensor empty(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor empty_like(const Tensor& t) { return empty(t.shape_, t.dtype_, t.device()); }
  static Tensor zeros(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, DType dtype, Device device = kCpu);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int ndim() const { return shape_.ndim(); }
  std::int64_t size(int dim) const { return shape_[normalize_dim(dim, ndim(), "size")]; }
  std::int64_t stride(int dim) const { return strides_[normalize_dim(dim, ndim(), "stride")]; }
  std::int64_t numel() const { return shape_.numel(); }
  std::int64_t offset() const { return offset_; }  // elements from the start of the storage
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  bool is_contiguous() const;
  std::uint32_t version() const { return storage_->version; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  // The first element. Throws Error(dtype) unless T is the tensor's type, Error(device) on meta.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(typed_data(dtype_of<T>));
  }
  template <class T>
  T* mutable_data() {
    ++storage_->version;
    return static_cast<T*>(typed_data(dtype_of<T>));
  }
  // What kernels receive. mutable_view() throws Error(shape) on an expanded tensor (stride 0),
  // whose elements share bytes.
  ConstView view() const;
  View mutable_view();

  // Windows on the same storage, outside autograd (ops/ops.h has the differentiable ones).
  // Requires: the window lies inside the storage; throws Error(shape) otherwise.
  Tensor as_strided(const Shape& shape, const Strides& strides, std::int64_t offset) const;
  Tensor slice_view(int dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  Tensor transpose_view(int a, int b) const;
  Tensor expand_view(const Shape& shape) const;
  // Requires a contiguous tensor and the same number of elements; one size may be -1 (inferred).
  Tensor reshape_view(const Shape& shape) const;

  // The value of a tensor with one element, converted to double. On cuda it waits for the GPU.
  double item() const;

  Tensor detach() const {
    Tensor t = *this;
    t.grad_meta_.reset();
    return t;
  }
  const std::shared_ptr<GradMeta>& grad_meta() const { return grad_meta_; }
  void set_grad_meta(std::shared_ptr<GradMeta> meta) { grad_meta_ = std::move(meta); }

 private:
  void* typed_data(DType wanted) const;
  void* raw_data() const;

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<GradMeta> grad_meta_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_ = 0;
  DType dtype_ = DType::f32;
};

}  // namespace duet
