// Trains a classifier whose logits are soft-capped, with Duet's optimizer. While the cap is 1 the
// loss cannot fall below log(1 + e^-2) = 0.127, so a smaller one means that the cap was learned.
#include <cstdio>
#include <vector>

#include "autograd/node.h"
#include "models/linear.h"
#include "ops/ops.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "softcap.h"
#include "train/optimizer.h"

namespace {

using duet::Tensor;

struct Net {
  duet::Linear layer{8, 2, /*with_bias=*/true, {}};
  duet::Parameter cap{Tensor::full({}, 1.0, duet::DType::f32)};

  Net() {
    fill_normal(layer.weight, {.seed = 1}, 0, 0.1);
    duet::fill(layer.bias, 0);
  }
  Tensor operator()(const Tensor& x) const { return example::softcap(layer(x), cap); }
  void visit(auto&& f) {  // names, optimizer and checkpoints follow from this list
    f("layer", layer);
    f("cap", cap);
  }
};

}  // namespace

int main() {
  // 64 points in 8 dimensions; the class is the sign of the first coordinate.
  Tensor x = Tensor::empty({64, 8}, duet::DType::f32);
  fill_uniform(x, {.seed = 2}, -1, 1);
  Tensor targets = Tensor::empty({64}, duet::DType::i64);
  for (std::int64_t i = 0; i < 64; ++i) {
    targets.mutable_data<std::int64_t>()[i] = x.data<float>()[i * 8] > 0 ? 1 : 0;
  }

  Net net;
  duet::AdamW optimizer(duet::named_tensors(net), {.weight_decay = 0});
  double loss_value = 0;
  for (int step = 0; step <= 300; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(x), targets);
    duet::backward(loss);
    optimizer.step(0.03);
    loss_value = loss.item();
    if (step % 100 == 0)
      std::printf("step %3d  loss %.4f  cap %.3f\n", step, loss_value, net.cap.item());
  }
  return loss_value < 0.1 ? 0 : 1;
}
