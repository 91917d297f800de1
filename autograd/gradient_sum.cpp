#include "autograd/gradient_sum.h"

#include <utility>

#include "autograd/op.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

struct GradientSum {
  static constexpr const char* name = "gradient_sum";
  struct Saved {};
  std::size_t parts;

  Tensor forward(Saved&, const std::vector<Tensor>& in) const {
    Tensor y = clone(in[0]);
    for (std::size_t i = 1; i < parts; ++i) accumulate(y, in[i]);
    return y;
  }
  // d(part) = dy
  std::vector<Tensor> backward(const Saved&, const Tensor& dy) const {
    return std::vector<Tensor>(parts, dy);
  }
  std::vector<Tensor> differentiable_backward(const Saved& saved, const Tensor& dy) const {
    return backward(saved, dy);
  }
};

}  // namespace

bool is_exclusive(const Tensor& t) {
  return t.storage().use_count() == 1 && t.is_contiguous() && t.storage()->bytes() == t.nbytes();
}

Tensor sum_of(Tensor a, Tensor b) {
  if (!is_exclusive(a)) std::swap(a, b);
  if (!is_exclusive(a)) a = clone(a);
  accumulate(a, b);
  return a;
}

Tensor differentiable_sum(const std::vector<Tensor>& parts) {
  return apply_list(GradientSum{parts.size()}, parts);
}

void throw_no_second_order(const char* op) {
  throw Error(ErrorKind::autograd,
              concat(op,
                     ": second derivatives are not offered; differentiate without create_graph, "
                     "or compose what the op computes of ops that offer them"));
}

}  // namespace duet
