#include "tests/ops/harness.h"

#include <cmath>
#include <cstring>
#include <sstream>

#include "autograd/op.h"
#include "runtime/memory_ops.h"

namespace duet::test {
namespace {

std::uint64_t seed_shift = 0;
Device device_in_use = kCpu;

// sum_i <y_i, w_i>;  d/dy_i = w_i * dy
struct WeightedSum {
  static constexpr const char* name = "weighted_sum";
  struct Saved {};
  Tensors weights;

  Tensor forward(Saved&, const Tensors& outputs) const {
    double sum = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].device().type == DeviceType::meta) continue;
      const std::vector<double> y = values(outputs[i]), w = values(weights[i]);
      for (std::size_t k = 0; k < y.size(); ++k) sum += y[k] * w[k];
    }
    return Tensor::full({}, sum, outputs[0].dtype(), outputs[0].device());
  }
  Tensors backward(const Saved&, const Tensor& dy) const {
    check(dy.device().type == DeviceType::meta || dy.item() == 1.0, ErrorKind::internal,
          "weighted_sum: backward starts here, so its own gradient must be 1");
    return weights;
  }
};

std::string index_text(const Shape& shape, std::int64_t flat) {
  Dims index = Dims::filled(shape.ndim(), 0);
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return concat(index);
}

bool close(double got, double want, Tolerance t) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= t.atol + t.rtol * std::abs(want);  // false when got is NaN
}

Tensors cotangents(const OpCase& row, const Tensors& inputs, std::uint64_t seed, bool integers) {
  Tensors result;
  for (const Tensor& y : forward(row, inputs)) {  // for the shapes alone
    const std::uint64_t s = seed + 1000 * result.size();
    result.push_back(integers ? random_integers(y.shape(), s)
                              : random_tensor(y.shape(), -1.0, 1.0, s));
  }
  return result;
}

}  // namespace

void use_seed(std::uint64_t seed) { seed_shift = seed * 1'000'003; }

void use_device(Device device) { device_in_use = device; }
Device test_device() { return device_in_use; }
std::vector<DType> test_dtypes() {
  if (device_in_use == kCpu) return {DType::f32, DType::f64};
  return {DType::f32};
}
DType widest_dtype() { return test_dtypes().back(); }

Tensor random_tensor(const Shape& shape, double low, double high, std::uint64_t seed) {
  Tensor x = Tensor::empty(shape, DType::f32);
  RandomKey key;
  key.seed = seed + seed_shift;
  key.use = kUseTest;
  fill_uniform(x, key, low, high);
  return convert(x, DType::f64);
}

Tensor random_integers(const Shape& shape, std::uint64_t seed) {
  Tensor x = random_tensor(shape, -3.5, 3.5, seed);
  double* p = x.mutable_data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) p[i] = std::round(p[i]);
  return x;
}

Tensor convert(const Tensor& t, DType dtype) {
  Tensor out = Tensor::empty(t.shape(), dtype, t.device());
  copy(out, t);
  return out;
}

Tensors convert(const Tensors& ts, DType dtype) {
  Tensors out;
  for (const Tensor& t : ts) out.push_back(convert(t, dtype));
  return out;
}

Tensors on_device(const Tensors& ts, DType dtype) {
  Tensors out;
  for (const Tensor& t : ts) out.push_back(to_device(convert(t, dtype), device_in_use));
  return out;
}

Tensors on_host(const Tensors& ts) {
  Tensors out;
  for (const Tensor& t : ts) out.push_back(convert(to_device(t, kCpu), DType::f64));
  return out;
}

std::vector<double> values(const Tensor& t) {
  const Tensor x = convert(to_device(t, kCpu), DType::f64);
  return {x.data<double>(), x.data<double>() + x.numel()};
}

Tensors random_inputs(const OpCase& row, std::uint64_t seed) {
  Tensors inputs;
  for (const Shape& shape : row.inputs) {
    inputs.push_back(random_tensor(shape, row.low, row.high, seed + 1000 * inputs.size()));
  }
  return inputs;
}

Tensors random_cotangents(const OpCase& row, const Tensors& inputs, std::uint64_t seed) {
  return cotangents(row, inputs, seed, /*integers=*/false);
}

Tensors integer_cotangents(const OpCase& row, const Tensors& inputs, std::uint64_t seed) {
  return cotangents(row, inputs, seed, /*integers=*/true);
}

Tensor weighted_sum(const Tensors& outputs, const Tensors& weights) {
  return apply_list(WeightedSum{weights}, outputs);
}

Tensors forward(const OpCase& row, const Tensors& inputs) {
  const NoGradGuard no_grad;
  return row.call(inputs);
}

Result run(const OpCase& row, const Tensors& inputs, const Tensors& cotangents) {
  Tensors leaves;
  for (const Tensor& t : inputs) {
    leaves.push_back(t.detach());
    set_requires_grad(leaves.back());
  }
  Result result;
  result.outputs = row.call(leaves);
  if (!row.differentiable) {
    for (const Tensor& y : result.outputs) {
      check(!requires_grad(y), ErrorKind::autograd, row.name,
            ": an output has a graph, the row says that the op has no gradient");
    }
    return result;
  }
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    check(requires_grad(result.outputs[i]), ErrorKind::autograd, row.name, ": output ", i,
          " has no graph although every input requires grad");
  }
  backward(weighted_sum(result.outputs, cotangents));
  for (const Tensor& leaf : leaves) result.grads.push_back(grad(leaf));
  return result;
}

Tolerance same_outputs(const OpCase& row) {
  return device_in_use == kCpu ? Tolerance{1e-12, 1e-12} : Tolerance{row.rtol, row.atol};
}
Tolerance same_grads(const OpCase& row) {
  return device_in_use == kCpu ? Tolerance{1e-12, 1e-12} : Tolerance{row.grad_rtol, row.grad_atol};
}

std::string compare(const std::string& what, const Tensor& got, const Tensor& want,
                    Tolerance tolerance) {
  if (!got.defined() || !want.defined()) {
    if (got.defined() == want.defined()) return "";
    return concat(what, ": got ", got.defined() ? "a tensor" : "nothing", ", expected ",
                  want.defined() ? "a tensor" : "nothing");
  }
  if (got.shape() != want.shape()) {
    return concat(what, ": got shape ", got.shape(), ", expected ", want.shape());
  }
  const std::vector<double> g = values(got), w = values(want);
  std::size_t bad = 0, first = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (close(g[i], w[i], tolerance)) continue;
    if (bad++ == 0) first = i;
  }
  if (bad == 0) return "";
  std::ostringstream text;
  text.precision(10);
  text << what << ": element " << index_text(got.shape(), static_cast<std::int64_t>(first))
       << ": got " << g[first] << ", expected " << w[first] << " (difference "
       << g[first] - w[first] << ", allowed " << tolerance.atol << " + " << tolerance.rtol
       << " relative); " << bad << " of " << g.size() << " elements are off";
  return text.str();
}

std::string compare(const std::string& what, const Result& got, const Result& want,
                    Tolerance outputs, Tolerance grads) {
  if (got.outputs.size() != want.outputs.size()) {
    return concat(what, ": got ", got.outputs.size(), " outputs, expected ", want.outputs.size());
  }
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    std::string fault =
        compare(concat(what, ": output ", i), got.outputs[i], want.outputs[i], outputs);
    if (!fault.empty()) return fault;
  }
  for (std::size_t i = 0; i < got.grads.size(); ++i) {
    std::string fault =
        compare(concat(what, ": gradient of input ", i), got.grads[i], want.grads[i], grads);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string compare_bits(const std::string& what, const Result& got, const Result& want) {
  if (std::string fault = compare(what, got, want, {}, {}); !fault.empty()) return fault;
  const auto same = [](const Tensor& a, const Tensor& b) {
    const Tensor x = clone(to_device(a, kCpu)), y = clone(to_device(b, kCpu));
    return visit_any(x.dtype(), [&]<class T>(TypeTag<T>) {
      return x.numel() == 0 || std::memcmp(x.data<T>(), y.data<T>(), x.nbytes()) == 0;
    });
  };
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    if (!same(got.outputs[i], want.outputs[i]))
      return concat(what, ": output ", i, ": bits differ");
  }
  for (std::size_t i = 0; i < got.grads.size(); ++i) {
    if (!got.grads[i].defined()) continue;
    if (!same(got.grads[i], want.grads[i])) {
      return concat(what, ": gradient of input ", i, ": bits differ");
    }
  }
  return "";
}

}  // namespace duet::test
