#include "ops/coupling/check_coupling.h"

#include "ops/check_inputs.h"
#include "ops/rope/rope.h"

namespace duet {

void check_pair(const char* op, const Tensor& q, const Tensor& k, const CouplingOptions& options,
                bool invertible) {
  check(q.ndim() == 4, ErrorKind::shape, op, ": q is ", q.shape(), ", expected [B, T, Hq, D]");
  check(k.ndim() == 4 && k.size(0) == q.size(0) && k.size(1) == q.size(1) && k.size(3) == q.size(3),
        ErrorKind::shape, op, ": k is ", k.shape(), ", expected [", q.size(0), ", ", q.size(1),
        ", Hkv, ", q.size(3), "], as q ", q.shape());
  check(k.size(2) >= 1 && q.size(2) % k.size(2) == 0 && q.size(2) >= 1, ErrorKind::shape, op, ": ",
        q.size(2), " query heads do not share ", k.size(2), " key heads evenly; got q ", q.shape(),
        ", k ", k.shape());
  check(options.steps >= 1, ErrorKind::usage, op, ": steps is ", options.steps,
        ", expected 1 or more");
  check(invertible || !options.run_back, ErrorKind::usage, op,
        ": run_back is true, expected false: this map is not inverted");
  if (options.rotation.defined()) check_rotation(op, q, options.rotation, options.position);
}

void check_stepped_coupling(const char* op, const SteppedInputs& in, const CouplingOptions& options,
                            const SteppedTraits& traits) {
  const auto& [q, k, w1, w2, dt] = in;
  check_inputs(op, {{"q", q}, {"k", k}, {"w1", w1}, {"w2", w2}, {"dt", dt}});
  check_pair(op, q, k, options, traits.invertible);
  check(w1.ndim() == 3 && (w1.size(0) == 1 || w1.size(0) == k.size(2)) && w1.size(2) == q.size(3),
        ErrorKind::shape, op, ": w1 is ", w1.shape(), ", expected [", k.size(2), " or 1, h, ",
        q.size(3), "]");
  const Shape w2_shape{w1.size(0), traits.one_output ? 1 : w1.size(2), w1.size(1)};
  check(w2.shape() == w2_shape, ErrorKind::shape, op, ": w2 is ", w2.shape(), ", expected ",
        w2_shape, ", as w1 is ", w1.shape());
  check(dt.shape() == Shape{k.size(2)} || dt.shape() == Shape{w1.size(0)}, ErrorKind::shape, op,
        ": dt is ", dt.shape(), ", expected ", Shape{k.size(2)}, ", one per key head",
        w1.size(0) == k.size(2) ? "" : ", or [1] for all of them, as for the net");
}

}  // namespace duet
