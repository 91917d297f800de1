#include "tests/ops/op_facts.h"

#include <array>
#include <sstream>

#include "autograd/node.h"
#include "runtime/cpu/kernel_trace.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/op_cases.h"

namespace duet::test {
namespace {

constexpr std::array kDTypes{DType::f32, DType::f64, DType::bf16, DType::f16,
                             DType::i32, DType::i64, DType::u8};
constexpr std::array kDevices{kCpu, Device{DeviceType::cuda, 0}, kMeta};

Tensors inputs_on(const OpCase& row, DType dtype, Device device) {
  Tensors inputs;
  for (const Shape& shape : row.inputs) inputs.push_back(Tensor::zeros(shape, dtype, device));
  return inputs;
}

bool runs(const OpCase& row, DType dtype, Device device) {
  try {
    forward(row, inputs_on(row, dtype, device));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What ran since `trace` began, and allocated since there were `allocations`.
std::string implementation(const KernelTrace& trace, std::uint64_t allocations,
                           bool* by_reference) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!text.empty()) text += " + ";
    text += part;
  };
  for (const std::string& name : trace.onednn()) {
    const bool reference = name.find("ref") != std::string::npos;
    *by_reference = *by_reference || reference;
    add(concat("oneDNN ", name, reference ? " (REF: slow)" : ""));
  }
  if (!trace.highway().empty()) add(concat("Highway ", trace.highway()));
  if (!text.empty()) return text;
  return allocator(kCpu).stats().allocations == allocations ? "view" : "plain loop";
}

}  // namespace

const std::vector<std::string>& op_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    std::istringstream list(DUET_OP_NAMES);
    for (std::string name; std::getline(list, name, ',');) all.push_back(name);
    return all;
  }();
  return names;
}

std::string op_of(const OpCase& row) {
  std::string best;
  for (const std::string& op : op_names()) {
    const bool begins = row.name == op || row.name.rfind(concat(op, '_'), 0) == 0;
    if (begins && op.size() > best.size()) best = op;
  }
  check(!best.empty(), ErrorKind::internal, "op table: row ", row.name,
        " begins with no op of ops/ops.h; name it after its op (the list is taken from ops.h when "
        "CMake runs)");
  return best;
}

std::vector<OpCase> rows_of(const std::string& op) {
  std::vector<OpCase> rows;
  for (const OpCase& row : op_cases()) {
    if (op_of(row) == op) rows.push_back(row);
  }
  return rows;
}

OpFacts facts_of(const std::string& op) {
  OpFacts facts;
  facts.name = op;
  const std::vector<OpCase> rows = rows_of(op);
  check(!rows.empty(), ErrorKind::internal, "op table: ", op, " has no row");
  const OpCase& row = rows.front();
  for (const Device device : kDevices) {
    if (!runs(row, DType::f32, device)) continue;
    OpFacts::OnDevice& found = facts.devices.emplace_back();
    found.device = name(device.type);
    for (const DType dtype : kDTypes) {
      if (runs(row, dtype, device)) found.dtypes.emplace_back(name(dtype));
    }
  }
  Tensors leaves = convert(random_inputs(row), DType::f32);
  for (Tensor& t : leaves) set_requires_grad(t);
  Tensors outputs;
  {
    const KernelTrace trace;
    const std::uint64_t before = allocator(kCpu).stats().allocations;
    outputs = row.call(leaves);
    facts.forward = true;
    facts.forward_by = implementation(trace, before, &facts.by_reference);
  }
  facts.backward = requires_grad(outputs[0]);
  if (!facts.backward) return facts;
  facts.second_order = offers_second_order(row);
  Tensors cotangents;
  for (const Tensor& y : outputs) cotangents.push_back(Tensor::full(y.shape(), 1, DType::f32));
  const Tensor loss = weighted_sum(outputs, cotangents);
  const KernelTrace trace;
  const std::uint64_t before = allocator(kCpu).stats().allocations;
  backward(loss);
  facts.backward_by = implementation(trace, before, &facts.by_reference);
  return facts;
}

}  // namespace duet::test
