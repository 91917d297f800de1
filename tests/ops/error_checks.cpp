#include <exception>

#include "autograd/node.h"
#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"

namespace duet::test {
namespace {

// Calls the row; "" if it throws an Error of this kind whose text begins with the op's name.
std::string expect_error(const OpCase& row, const std::string& what, const Tensors& inputs,
                         ErrorKind kind) {
  try {
    forward(row, inputs);
  } catch (const Error& e) {
    const std::string text = e.what();
    const std::string op = text.substr(0, text.find(':'));
    if (op.size() >= text.size() || row.name.rfind(op, 0) != 0) {
      return concat(row.name, ": ", what, ": the error does not begin with the op: ", text);
    }
    if (e.kind() != kind) {
      return concat(row.name, ": ", what, ": the error has kind ", static_cast<int>(e.kind()),
                    ", expected ", static_cast<int>(kind), ": ", text);
    }
    return "";
  } catch (const std::exception& e) {
    return concat(row.name, ": ", what, ": threw no duet::Error: ", e.what());
  }
  return concat(row.name, ": ", what, ": was accepted, expected an error");
}

// What a call takes from an allocator.
struct Taken {
  std::uint64_t allocations = 0;
  std::size_t peak = 0;  // bytes above what was there before
  friend bool operator==(const Taken&, const Taken&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Taken& t) {
    return out << t.allocations << " blocks, peak " << t.peak << " bytes";
  }
};

template <class F>
Taken taken_by(Device device, F&& call) {
  Allocator& memory = allocator(device);
  memory.reset_peak();
  const MemoryStats before = memory.stats();
  call();
  const MemoryStats after = memory.stats();
  return {after.allocations - before.allocations, after.peak_allocated - before.allocated};
}

// Forward, then backward.
std::array<Taken, 2> taken_by_a_step(const OpCase& row, const Tensors& inputs,
                                     const Tensors& cotangents) {
  const Device device = inputs[0].device();
  Tensors leaves = inputs, outputs;
  for (Tensor& t : leaves) set_requires_grad(t);
  const Taken forward = taken_by(device, [&] { outputs = row.call(leaves); });
  const Tensor loss = weighted_sum(outputs, cotangents);
  return {forward, taken_by(device, [&] { backward(loss); })};
}

}  // namespace

std::string check_errors(const OpCase& row) {
  const Tensors exact = random_inputs(row), plain = on_device(exact, DType::f32);
  for (std::size_t i = 0; i < plain.size() && plain.size() >= 2; ++i) {
    Tensors mixed = plain;
    mixed[i] = Tensor::full(plain[i].shape(), 0.5, DType::f64, plain[i].device());
    std::string fault = expect_error(row, concat("input ", i, " in f64, the others in f32"), mixed,
                                     ErrorKind::dtype);
    if (!fault.empty()) return fault;
    mixed[i] = Tensor::empty(plain[i].shape(), DType::f32, kMeta);
    const Device here = test_device();
    fault = expect_error(row, concat("input ", i, " on meta, the others on ", here), mixed,
                         ErrorKind::device);
    if (fault.empty() && here != kCpu) {
      mixed[i] = to_device(plain[i], kCpu);
      fault = expect_error(row, concat("input ", i, " on cpu, the others on ", here), mixed,
                           ErrorKind::device);
    }
    if (!fault.empty()) return fault;
  }
  const Tensors whole = on_device(exact, DType::i32);
  try {
    const Tensors outputs = forward(row, whole);
    // Ops that only move elements take any dtype, and keep it.
    if (outputs[0].dtype() == DType::i32) return "";
  } catch (const Error&) {
  }
  return expect_error(row, "i32 inputs", whole, ErrorKind::dtype);
}

std::string check_meta(const OpCase& row) {
  const Tensors exact = random_inputs(row);
  Tensors inputs, cotangents;
  const Device meta = meta_for(test_device());
  for (const Tensor& t : exact) inputs.push_back(Tensor::empty(t.shape(), DType::f32, meta));
  const Tensors real = forward(row, exact), outputs = forward(row, inputs);
  for (std::size_t i = 0; i < real.size(); ++i) {
    const Tensor& y = outputs[i];
    if (y.shape() != real[i].shape() || y.device() != meta) {
      return concat(row.name, " on meta: output ", i, " is ", y.shape(), " on ", y.device(),
                    ", expected ", real[i].shape(), " on meta");
    }
    cotangents.push_back(Tensor::empty(y.shape(), DType::f32, meta));
  }
  if (!row.differentiable) return "";
  const Result result = run(row, inputs, cotangents);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& g = result.grads[i];
    if (!g.defined() || g.shape() != inputs[i].shape() || g.device() != meta) {
      return concat(row.name, " on meta: input ", i, " got no gradient of its shape on meta");
    }
  }
  const std::array<Taken, 2> planned = taken_by_a_step(row, inputs, cotangents);
  const std::array<Taken, 2> measured = taken_by_a_step(
      row, on_device(exact, DType::f32), on_device(random_cotangents(row, exact), DType::f32));
  for (const std::size_t i : {0U, 1U}) {
    if (planned[i] == measured[i]) continue;
    return concat(row.name, ": ", i == 0 ? "forward" : "backward", " on meta takes ", planned[i],
                  "; on ", name(test_device().type), ' ', measured[i]);
  }
  return "";
}

}  // namespace duet::test
