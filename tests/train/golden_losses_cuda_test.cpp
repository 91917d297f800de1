// Ten training steps on the GPU: against PyTorch, and for every coupling against the cpu.
#include <cmath>
#include <tuple>

#include "models/enum_names.h"
#include "tests/models/model_helpers.h"
#include "tests/runtime/cuda_support.h"
#include "tests/train/golden_losses.h"

namespace duet::test {
namespace {

TEST(CudaLosses, LlamaCoupledAgainstPyTorch) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  expect_golden_losses("tiny_llama.safetensors", DType::f32, kCuda, 1e-4);
}
TEST(CudaLosses, Gpt2AgainstPyTorch) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  expect_golden_losses("tiny_gpt2.safetensors", DType::f32, kCuda, 1e-4);
}

class CudaCouplings : public testing::TestWithParam<std::tuple<Family, CouplingKind>> {};

TEST_P(CudaCouplings, TenLossesAsOnTheCpu) {
  if (!has_gpu()) GTEST_SKIP() << cuda_status().reason;
  const auto [family, coupling] = GetParam();
  const SafetensorsFile file =
      golden_file(family == Family::llama ? "tiny_llama.safetensors" : "tiny_gpt2.safetensors");
  Golden g = read_settings(file);
  g.model.coupling = g.run.model.coupling = coupling;
  const auto losses_on = [&](Device device) {
    Transformer model(g.model, DType::f32, device);
    model.initialize(1337);
    return ten_steps(file, g, model);
  };
  const std::vector<StepResult> want = losses_on(kCpu), got = losses_on(kCuda);
  ASSERT_EQ(got.size(), 10U);
  for (std::size_t step = 0; step < got.size(); ++step) {
    EXPECT_NEAR(got[step].loss, want[step].loss, 1e-4 * want[step].loss) << "step " << step;
    EXPECT_NEAR(got[step].grad_norm, want[step].grad_norm, 1e-2 * want[step].grad_norm)
        << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, CudaCouplings,
    testing::Combine(testing::Values(Family::llama, Family::gpt2),
                     testing::Values(CouplingKind::none, CouplingKind::euler,
                                     CouplingKind::leapfrog, CouplingKind::symplectic_euler,
                                     CouplingKind::uncoupled, CouplingKind::uncoupled_k,
                                     CouplingKind::affine, CouplingKind::hamiltonian_potential)),
    [](const auto& of) {
      std::string name =
          concat(enum_name(std::get<0>(of.param)), '_', enum_name(std::get<1>(of.param)));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace duet::test
