#include "ops/matmul/merge_dims.h"

#include "runtime/cpu/onednn.h"

namespace duet {
namespace {

// One operand of a product with its dimensions in the making.
struct Operand {
  ConstView view;

  // Dimensions d and d + 1 of all operands become one.
  void merge(int d) {
    view.shape[d + 1] *= view.shape[d];
    erase(d);
  }
  void erase(int d) {
    Shape shape;
    Strides strides;
    for (int i = 0; i < view.ndim(); ++i) {
      if (i == d) continue;
      shape.push_back(view.shape[i]);
      strides.push_back(view.strides[i]);
    }
    view.shape = shape;
    view.strides = strides;
  }
  bool steps_as_one(int d) const {
    return view.strides[d] == view.strides[d + 1] * view.shape[d + 1];
  }
};

void simplify(Operand& a, Operand& b, Operand& c) {
  const auto all = [&](auto&& f) {
    f(a);
    f(b);
    f(c);
  };
  for (int d = c.view.ndim() - 3; d >= 0; --d) {
    if (c.view.shape[d] == 1) {
      all([&](Operand& x) { x.erase(d); });
    } else if (d + 3 < c.view.ndim() && a.steps_as_one(d) && b.steps_as_one(d) &&
               c.steps_as_one(d)) {
      all([&](Operand& x) { x.merge(d); });
    }
  }
  for (int d = c.view.ndim() - 3; d >= 0; --d) {
    if (b.view.strides[d] != 0 || !a.steps_as_one(d) || !c.steps_as_one(d)) return;
    Operand rows = a;
    rows.merge(d);
    if (!is_gemm_operand(rows.view)) return;
    a = rows;
    b.erase(d);
    c.merge(d);
  }
}

}  // namespace

void merge_dims(ConstView& a, ConstView& b, View& c) {
  Operand left{a};
  Operand right{b};
  Operand out{c};
  simplify(left, right, out);
  a = left.view;
  b = right.view;
  c.shape = out.view.shape;
  c.strides = out.view.strides;
}

}  // namespace duet
