// What the checks of tests/ops/checks.h are built from: random inputs, one forward and backward of
// a row, comparison with a message that names row, tensor, element, got and expected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/allocator.h"
#include "tests/ops/op_case.h"

namespace duet::test {

// Other random inputs in every check; 0 are those of the tests.
void use_seed(std::uint64_t seed);

// Where the checks run an op in f32; the cpu unless said otherwise. Oracle and gradients in f64
// stay on the cpu, which has f64 alone.
void use_device(Device device);
Device test_device();
// On test_device() until the end of the C++ block.
class DeviceScope {
 public:
  explicit DeviceScope(Device device) : previous_(test_device()) { use_device(device); }
  ~DeviceScope() { use_device(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device previous_;
};
// The dtypes that the checks run in there: f32, and f64 on the cpu.
std::vector<DType> test_dtypes();
// The last of them: what the checks that need no oracle run in.
DType widest_dtype();

// Uniform in [low, high), values that float holds exactly, as contiguous f64.
Tensor random_tensor(const Shape& shape, double low, double high, std::uint64_t seed);
// Whole numbers in [-3, 3], as contiguous f64.
Tensor random_integers(const Shape& shape, std::uint64_t seed);
// The values of `t` in a new contiguous tensor of another dtype, on the same device.
Tensor convert(const Tensor& t, DType dtype);
Tensors convert(const Tensors& ts, DType dtype);
// The same on test_device().
Tensors on_device(const Tensors& ts, DType dtype = widest_dtype());
// The values of `t` as contiguous f64 on the cpu.
Tensors on_host(const Tensors& ts);
std::vector<double> values(const Tensor& t);

Tensors random_inputs(const OpCase& row, std::uint64_t seed = 1);
// One random cotangent per output of the row on these inputs, f64 on the cpu.
Tensors random_cotangents(const OpCase& row, const Tensors& inputs, std::uint64_t seed = 2);
Tensors integer_cotangents(const OpCase& row, const Tensors& inputs, std::uint64_t seed = 3);

// sum_i <outputs[i], weights[i]>, the scalar from which the checks start backward. The gradients it
// sends are the weights themselves: shared and strided as they are.
Tensor weighted_sum(const Tensors& outputs, const Tensors& weights);

struct Result {
  Tensors outputs;
  Tensors grads;  // one per input; undefined where no gradient arrived
};
// Forward without a graph.
Tensors forward(const OpCase& row, const Tensors& inputs);
// Forward and backward, every input a leaf of its own.
Result run(const OpCase& row, const Tensors& inputs, const Tensors& cotangents);

struct Tolerance {
  double rtol = 0, atol = 0;
};
// Between two ways to the same numbers on test_device(): rounding of f64, or what the row allows in
// f32.
Tolerance same_outputs(const OpCase& row);
Tolerance same_grads(const OpCase& row);
// "" if every element is within atol + rtol * |want| (NaN and infinities must match in place), else
// "<what>: element [1, 2]: got ..., expected ...".
std::string compare(const std::string& what, const Tensor& got, const Tensor& want,
                    Tolerance tolerance);
// Outputs and gradients of two runs. `what` begins the message.
std::string compare(const std::string& what, const Result& got, const Result& want,
                    Tolerance outputs, Tolerance grads);
std::string compare_bits(const std::string& what, const Result& got, const Result& want);

}  // namespace duet::test
