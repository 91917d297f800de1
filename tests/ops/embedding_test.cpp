// embedding: invalid ids, repeated ids, empty inputs, the order of sums.
#include <gtest/gtest.h>

#include <string>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops.h"
#include "runtime/random.h"

namespace duet {
namespace {

std::string error_of(const Tensor& weight, const Tensor& ids) {
  try {
    embedding(weight, ids);
  } catch (const Error& e) {
    return (e.kind() == ErrorKind::index ? "index: " : "other: ") + std::string(e.what());
  }
  return "no error";
}

class Embedding : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Embedding, testing::Values(DType::f32, DType::f64),
                         [](const auto& row) { return std::string(name(row.param)); });

TEST_P(Embedding, RepeatedIdsSumExactly) {
  for (const std::int64_t times : {1, 300, 100'000}) {
    Tensor weight = Tensor::zeros({5, 3}, GetParam());
    set_requires_grad(weight);
    const Tensor ids = Tensor::full({times}, 4, DType::i32);
    const Tensor ones = Tensor::full({times, 3}, 1.0, GetParam());
    for (int round = 1; round <= 2; ++round) {  // the second adds into the leaf's buffer
      backward(embedding(weight, ids), ones);
      for (std::int64_t i = 0; i < 15; ++i) {
        const Tensor element = grad(weight).as_strided({}, {}, i);
        EXPECT_EQ(element.item(), i < 12 ? 0.0 : static_cast<double>(round * times));
      }
    }
  }
}

// 0.1 a hundred thousand times: a sum in float drifts by 1e-2.
TEST(EmbeddingSums, AreAccurateAndHaveTheSameBitsOnAnyNumberOfThreads) {
  Tensor weight = Tensor::zeros({3, 130}, DType::f32);
  set_requires_grad(weight);
  const Tensor ids = Tensor::full({100'000}, 1, DType::i64);
  const Tensor dy = Tensor::full({1, 1}, 0.1, DType::f32).expand_view({100'000, 130});
  backward(embedding(weight, ids), dy);
  EXPECT_NEAR(grad(weight).as_strided({}, {}, 130).item(), 1e5 * static_cast<double>(0.1F), 1e-3);

  Tensor many = Tensor::empty({4000}, DType::i64);
  RandomKey key;
  key.use = kUseTest;
  for (std::int64_t n = 0; n < 4000; ++n) {
    many.mutable_data<std::int64_t>()[n] = random_u32(key, static_cast<std::uint64_t>(n)) % 3;
  }
  Tensor g = Tensor::empty({4000, 130}, DType::f32);
  fill_uniform(g, key, -1, 1);
  const int threads = num_threads();
  std::vector<Tensor> results;
  for (const int n : {1, 2, 3, 5}) {
    set_num_threads(n);
    set_grad(weight, {});
    backward(embedding(weight, many), g);
    results.push_back(grad(weight));
  }
  set_num_threads(threads);
  for (const Tensor& r : results) {
    for (std::int64_t i = 0; i < 390; ++i) {
      ASSERT_EQ(r.data<float>()[i], results[0].data<float>()[i]);
    }
  }
}

TEST_P(Embedding, NoTokens) {
  Tensor weight = Tensor::full({3, 2}, 1.0, GetParam());
  set_requires_grad(weight);
  const Tensor y = embedding(weight, Tensor::empty({2, 0}, DType::i32));
  EXPECT_EQ(concat(y.shape()), "[2, 0, 2]");
  backward(y, Tensor::empty(y.shape(), GetParam()));
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(grad(weight).as_strided({}, {}, i).item(), 0.0);
}

TEST(EmbeddingErrors, NamePositionAndId) {
  const Tensor weight = Tensor::zeros({50257, 2}, DType::f32);
  Tensor ids = Tensor::zeros({2, 3}, DType::i32);
  EXPECT_EQ(error_of(weight, ids), "no error");
  ids.mutable_data<std::int32_t>()[4] = 50257;
  EXPECT_EQ(error_of(weight, ids), "index: embedding: ids[4]=50257 is outside [0, 50257)");
  ids.mutable_data<std::int32_t>()[4] = -1;
  EXPECT_EQ(error_of(weight, ids), "index: embedding: ids[4]=-1 is outside [0, 50257)");
  // A view counts positions of the view.
  EXPECT_EQ(error_of(weight, ids.slice_view(0, 1, 2)),
            "index: embedding: ids[1]=-1 is outside [0, 50257)");
  EXPECT_EQ(error_of(weight, Tensor::zeros({2}, DType::f32)),
            "other: embedding: ids are f32, expected i32 or i64");
  EXPECT_EQ(error_of(Tensor::zeros({2}, DType::f32), ids),
            "other: embedding: weight is [2], expected [vocabulary, width]");
}

}  // namespace
}  // namespace duet
