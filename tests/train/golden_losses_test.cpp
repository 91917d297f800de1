// Ten training steps of two tiny models against PyTorch: same weights, tokens and AdamW.
#include "tests/train/golden_losses.h"

namespace duet::test {
namespace {

TEST(GoldenLosses, LlamaCoupledInFloat64) {
  expect_golden_losses("tiny_llama.safetensors", DType::f64, kCpu, 1e-8);
}
TEST(GoldenLosses, LlamaCoupledInFloat32) {
  expect_golden_losses("tiny_llama.safetensors", DType::f32, kCpu, 1e-4);
}
TEST(GoldenLosses, Gpt2InFloat64) {
  expect_golden_losses("tiny_gpt2.safetensors", DType::f64, kCpu, 1e-8);
}
TEST(GoldenLosses, Gpt2InFloat32) {
  expect_golden_losses("tiny_gpt2.safetensors", DType::f32, kCpu, 1e-4);
}

}  // namespace
}  // namespace duet::test
