// Helpers of the model tests: tiny configurations, token ids, values as doubles, exact comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/saved_tensor.h"
#include "models/transformer.h"
#include "runtime/memory_ops.h"

namespace duet::test {

inline constexpr CouplingKind kCouplings[] = {CouplingKind::euler,
                                              CouplingKind::leapfrog,
                                              CouplingKind::symplectic_euler,
                                              CouplingKind::uncoupled,
                                              CouplingKind::uncoupled_k,
                                              CouplingKind::affine,
                                              CouplingKind::hamiltonian_potential};

// 2 layers of width 16, heads of width 4, context 8, 13 ids: small enough to check every number.
inline ModelConfig micro(Family family, CouplingKind coupling = CouplingKind::euler) {
  ModelConfig c = family_defaults(family);
  c.n_layer = 2;
  c.n_head = 4;
  c.n_embd = 16;
  c.d_ff = 24;
  c.block_size = 8;
  c.vocab_size = 13;
  c.coupling = coupling;
  c.coupling_hidden = 3;
  return c;
}

// Reproducible ids in [0, vocab).
inline Tensor make_ids(std::int64_t b, std::int64_t t, std::int64_t vocab, std::uint64_t seed = 1) {
  Tensor ids = Tensor::empty({b, t}, DType::i32);
  std::int32_t* p = ids.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < b * t; ++i) {
    p[i] = static_cast<std::int32_t>(
        random_u32({seed, 0, 0, kUseTest, 0}, static_cast<std::uint64_t>(i)) %
        static_cast<std::uint64_t>(vocab));
  }
  return ids;
}

inline std::vector<double> values(const Tensor& t) {
  const Tensor flat = contiguous_copy(t.detach());
  std::vector<double> out(static_cast<std::size_t>(flat.numel()));
  visit_any(flat.dtype(), [&]<class T>(TypeTag<T>) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if constexpr (sizeof(T) == 2) {
        out[i] = static_cast<double>(static_cast<float>(flat.data<T>()[i]));
      } else {
        out[i] = static_cast<double>(flat.data<T>()[i]);
      }
    }
  });
  return out;
}

inline double max_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const std::vector<double> x = values(a), y = values(b);
  double worst = 0;
  for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

inline double max_abs(const Tensor& t) {
  double worst = 0;
  for (const double v : values(t)) worst = std::isnan(v) ? INFINITY : std::max(worst, std::abs(v));
  return worst;
}

// Adds N(0, stddev) to every weight: away from the round values of an initialisation.
inline void perturb(Transformer& model, double stddev, std::uint64_t seed = 7) {
  std::uint32_t index = 0;
  for (NamedTensor& t : named_tensors(model)) {
    Tensor noise = Tensor::empty(t.value.shape(), t.value.dtype());
    fill_normal(noise, {seed, 0, index++, kUseTest, 0}, 0, stddev);
    accumulate(t.value, noise);
  }
}

inline std::map<std::string, Tensor> weights(Transformer& model) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& t : named_tensors(model)) out[t.name] = t.value;
  return out;
}

inline std::map<std::string, Tensor> gradients(Transformer& model) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& t : named_tensors(model)) out[t.name] = t.gradient();
  return out;
}

// Copies every weight that both models have.
inline void copy_weights(Transformer& to, Transformer& from) {
  const std::map<std::string, Tensor> source = weights(from);
  for (NamedTensor& t : named_tensors(to)) {
    if (const auto found = source.find(t.name); found != source.end()) {
      copy(t.value, found->second);
    }
  }
}

inline void drop_gradients(Transformer& model) {
  for_each_parameter(model, [](const std::string&, Parameter& p) { set_grad(p, {}); });
}

inline std::string message_of(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace duet::test
