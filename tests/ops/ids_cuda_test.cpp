// Ids and targets on the GPU, where the rows of the table do not lead: ids that many rows share,
// ids out of range, rows of logits longer than a block takes at once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/cuda_status.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"
#include "tests/runtime/errors.h"

namespace duet::test {
namespace {

Tensor normals(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f32);
  fill_normal(t, {.seed = seed, .use = kUseTest}, 0, 1);
  return t;
}

Tensor ids_of(const std::vector<std::int64_t>& ids) {
  Tensor t = Tensor::empty({std::ssize(ids)}, DType::i64);
  std::copy(ids.begin(), ids.end(), t.mutable_data<std::int64_t>());
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data<float>(), b.data<float>(), a.nbytes()) == 0;
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  const Tensor x = to_device(got, kCpu);
  ASSERT_EQ(x.shape(), want.shape());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double y = want.data<float>()[i];
    ASSERT_LE(std::abs(x.data<float>()[i] - y), tolerance * (1 + std::abs(y))) << "element " << i;
  }
}

class IdsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_status().usable) GTEST_SKIP() << cuda_status().reason;
  }
};

Tensor embedding_gradient(const Tensor& weight, const Tensor& ids, const Tensor& dy,
                          Device device) {
  Tensor w = to_device(weight, device).detach();
  set_requires_grad(w);
  backward(embedding(w, to_device(ids, device)), to_device(dy, device));
  return to_device(grad(w), kCpu);
}

// More ids than one block sorts, and one of them in most parts of the sum.
TEST_F(IdsCuda, ManyRowsOfFewIds) {
  constexpr std::int64_t kRows = 5000;
  std::vector<std::int64_t> ids;
  for (std::int64_t n = 0; n < kRows; ++n) ids.push_back(n % 3 != 0 ? 4 : n * n % 9);
  const Tensor weight = normals({9, 36}, 1), dy = normals({kRows, 36}, 2);
  const Tensor got = embedding_gradient(weight, ids_of(ids), dy, kCuda);
  expect_near(got, embedding_gradient(weight, ids_of(ids), dy, kCpu), 2e-7);
  EXPECT_TRUE(same_bits(got, embedding_gradient(weight, ids_of(ids), dy, kCuda)));
}

TEST_F(IdsCuda, AnIdOutOfRangeIsTold) {
  const Tensor weight = to_device(Tensor::full({5, 4}, 1, DType::f32), kCuda);
  const Tensor y = embedding(weight, to_device(ids_of({0, 7, -1, 4}), kCuda));
  EXPECT_EQ(error_of(ErrorKind::index, [] { synchronize(kCuda); }),
            "embedding: ids[1]=7 is outside [0, 5) (found on the GPU)");
  const Tensor rows = to_device(y, kCpu);  // told once
  const float* value = rows.data<float>();
  EXPECT_EQ(std::vector<float>({value[0], value[4], value[8], value[15]}),
            std::vector<float>({1, 0, 0, 1}));
}

TEST_F(IdsCuda, TheFirstOfTwoCheckedTensorsIsTold) {
  const Tensor logits = to_device(normals({3, 5}, 1), kCuda);
  const Tensor loss = cross_entropy(logits, to_device(ids_of({4, -100, 5}), kCuda));
  cross_entropy(logits, to_device(ids_of({9, 9, 9}), kCuda));
  EXPECT_EQ(error_of(ErrorKind::index, [&] { loss.item(); }),
            "cross_entropy: targets[2]=5 is outside [0, 5) (found on the GPU)");
  EXPECT_TRUE(std::isfinite(loss.item()));
}

// Rows of several batches of a block, with and without a length of fours.
TEST_F(IdsCuda, LongRowsOfLogits) {
  for (const std::int64_t vocab : {5001, 8200}) {
    const Tensor logits = normals({3, vocab}, 3), targets = ids_of({vocab - 1, -100, 17});
    const auto run = [&](Device device) {
      Tensor x = to_device(logits, device).detach();
      set_requires_grad(x);
      const Tensor loss = cross_entropy(x, to_device(targets, device));
      backward(loss);
      return std::pair(loss.item(), to_device(grad(x), kCpu));
    };
    const auto [want, want_gradient] = run(kCpu);
    const auto [got, got_gradient] = run(kCuda);
    EXPECT_NEAR(got, want, 1e-6 * want);
    expect_near(got_gradient, want_gradient, 1e-7);
  }
}

}  // namespace
}  // namespace duet::test
