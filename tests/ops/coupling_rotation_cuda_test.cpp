// RoPE inside the couplings' kernels on the GPU, against RoPE as a pass of its own, in the widths
// of models.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "autograd/node.h"
#include "runtime/cuda_status.h"
#include "runtime/launch_count.h"
#include "tests/ops/coupling_reference.h"
#include "tests/runtime/gpu.h"

namespace duet::test {
namespace {

struct Pass {
  Tensors outputs, gradients;
  std::uint64_t rope_launches = 0;
};

// The coupling and RoPE: in one op, or one after the other.
Pass run_on_gpu(Map map, const Tensors& inputs, CouplingOptions options, bool absorbed) {
  Tensors in;
  for (const Tensor& t : inputs) {
    in.push_back(to_device(t, kCuda));
    set_requires_grad(in.back());
  }
  const Tensor table = std::exchange(options.rotation, Tensor());
  if (absorbed) options.rotation = table;
  Pass pass;
  start_counting_launches();
  Tensors out = fused(map, in, options);
  if (!absorbed) {
    for (Tensor& t : out) t = rope(t, table, options.position);
  }
  const Tensors weights{
      to_device(convert(random_tensor(out[0].shape(), -1, 1, 5), DType::f32), kCuda),
      to_device(convert(random_tensor(out[1].shape(), -1, 1, 6), DType::f32), kCuda)};
  backward(add(sum(mul(out[0], weights[0])), sum(mul(out[1], weights[1]))));
  for (const LaunchCount& c : stop_counting_launches()) {
    if (c.op == "rope") pass.rope_launches += c.launches;
  }
  for (const Tensor& t : out) pass.outputs.push_back(to_device(t.detach(), kCpu));
  for (const Tensor& t : in) pass.gradients.push_back(to_device(grad(t), kCpu));
  return pass;
}

void expect_near(const Tensors& got, const Tensors& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    double size = 1;
    for (const double v : values(want[i])) size = std::max(size, std::abs(v));
    EXPECT_EQ(compare(concat(what, ' ', i), got[i], want[i], {1e-5, 1e-5 * size}), "");
  }
}

class CouplingRotationCuda : public testing::TestWithParam<std::tuple<Map, std::int64_t>> {};

TEST_P(CouplingRotationCuda, EqualsRopeBehindIt) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const auto& [map, width] = GetParam();
  for (const std::int64_t key_heads : {2, 1}) {  // 1: a group of two queries
    const CouplingSetup setup{2, 19, 2, key_heads, width, 8, key_heads, 2};
    const Tensors inputs = coupling_inputs(map, setup, DType::f32);
    for (const bool run_back : {false, true}) {
      if (run_back && !is_invertible(map)) continue;
      SCOPED_TRACE(concat("key heads ", key_heads, run_back ? ", run back" : ""));
      const CouplingOptions options{setup.steps, run_back,
                                    rope_table(32, width, 100, DType::f32, kCuda), 7};
      const Pass got = run_on_gpu(map, inputs, options, true);
      const Pass want = run_on_gpu(map, inputs, options, false);
      expect_near(got.outputs, want.outputs, "output");
      expect_near(got.gradients, want.gradients, "gradient");
      // Of the uncoupled, one tensor does not pass through the kernel.
      const bool alone = map == Map::uncoupled || map == Map::uncoupled_k;
      EXPECT_EQ(want.rope_launches, 4U);
      EXPECT_EQ(got.rope_launches, alone ? 2U : 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, CouplingRotationCuda,
                         testing::Combine(testing::ValuesIn(kFusedMaps),
                                          testing::Values(16, 24, 64, 128)),
                         [](const auto& row) {
                           return name_of(std::get<0>(row.param)) +
                                  concat("_width", std::get<1>(row.param));
                         });

}  // namespace
}  // namespace duet::test
