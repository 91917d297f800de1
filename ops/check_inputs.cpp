#include "ops/check_inputs.h"

#include "ops/computing_dtype.h"

namespace duet {

void check_defined(const char* op, std::initializer_list<NamedInput> inputs) {
  const NamedInput& first = *inputs.begin();
  for (const auto& [name, t] : inputs) {
    check(t.defined(), ErrorKind::shape, op, ": ", name,
          " is an undefined tensor; expected one with values");
    check(t.device() == first.tensor.device(), ErrorKind::device, op, ": devices differ: ", name,
          " lies on ", t.device(), ", ", first.name, " on ", first.tensor.device(),
          "; copy one of them");
  }
}

void check_inputs(const char* op, std::initializer_list<NamedInput> inputs) {
  check_defined(op, inputs);
  const NamedInput& first = *inputs.begin();
  for (const auto& [name, t] : inputs) {
    check_no_f64_on_cuda(op, t.dtype(), t.device());
    check(computes(t.dtype(), t.device()), ErrorKind::dtype, op, ": ", name, " is ", t.dtype(),
          ", expected f32 or f64; convert it first");
    check(t.dtype() == first.tensor.dtype(), ErrorKind::dtype, op, ": dtypes differ: ", name,
          " is ", t.dtype(), ", ", first.name, " is ", first.tensor.dtype(),
          "; convert one of them");
  }
}

void check_addend(const char* op, const Tensor& x, const Tensor& delta) {
  check_inputs(op, {{"x", x}, {"delta", delta}});
  check(delta.shape() == x.shape(), ErrorKind::shape, op, ": delta is ", delta.shape(),
        ", expected ", x.shape(), ", the shape of x; nothing broadcasts here");
}

}  // namespace duet
