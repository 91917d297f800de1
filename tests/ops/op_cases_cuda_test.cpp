// Every row of the table on a GPU: f32 against the f64 oracle and the f64 gradients of the cpu, and
// the same bits whatever order threads and streams run in.
#include <gtest/gtest.h>

#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/proof.h"
#include "tests/runtime/cuda_support.h"

namespace duet::test {

void PrintTo(const OpCase& row, std::ostream* out) { *out << row.name; }

namespace {

class CudaOps : public testing::TestWithParam<OpCase> {};

// Repeated runs, poisoned memory, oracle, strides, small sizes, accumulation, ...: proof.cpp lists
// them, and what needs f64 or meta and stays on the cpu.
TEST_P(CudaOps, Proof) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const OwnAllocations own;
  const DeviceScope device(kCuda);
  const auto fault = first_fault(GetParam());
  EXPECT_FALSE(fault.has_value()) << fault->check << ": " << fault->kind << ": " << fault->message;
}

TEST_P(CudaOps, EveryOrderGivesTheSameBits) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const OpCase& row = GetParam();
  const OwnAllocations own;
  const DeviceScope device(kCuda);
  const Tensors exact = random_inputs(row);
  const Tensors inputs = on_device(exact);
  const Tensors cotangents = on_device(random_cotangents(row, exact));
  Result first;
  for (const Orders& orders : all_orders()) {
    use_orders(orders);
    Result result = run(row, inputs, cotangents);
    if (first.outputs.empty()) {
      const Result want{row.oracle(exact), run(row, exact, random_cotangents(row, exact)).grads};
      EXPECT_EQ(
          compare(row.name, result, want, {row.rtol, row.atol}, {row.grad_rtol, row.grad_atol}),
          "");
      first = std::move(result);
    } else {
      EXPECT_EQ(compare_bits(concat(row.name, " in order ", orders.name), result, first), "");
    }
  }
  use_orders(all_orders().front());
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOps, testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });

TEST(CudaHarness, RefusesFloat64BeforeItAllocates) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const std::uint64_t before = allocator(kCuda).stats().allocations;
  const Tensor x = Tensor::empty({4}, DType::f64, kCuda);
  try {
    silu(x);
    ADD_FAILURE() << "f64 was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::dtype) << e.what();
    EXPECT_NE(std::string(e.what()).find("silu: "), std::string::npos) << e.what();
  }
  EXPECT_EQ(allocator(kCuda).stats().allocations, before + 1);
}

}  // namespace
}  // namespace duet::test
