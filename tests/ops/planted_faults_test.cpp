// Faults that an author of ops makes, planted one at a time in a scratch op: the proof finds each
// and names its kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "runtime/memory_ops.h"
#include "tests/ops/checks.h"
#include "tests/ops/harness.h"
#include "tests/ops/oracle.h"
#include "tests/ops/proof.h"

namespace duet::test {
namespace {

enum class Plant {
  none,
  wrong_sign,
  missing_broadcast_sum,
  missing_broadcast_sum_with_its_shape,
  transposed_operand,
  transposed_operand_in_backward,
  ignores_strides,
  reads_uninitialised_memory,
  nondeterministic_sum,
  saves_too_much,
  leaks,
  keeps_the_last_call,
  keeps_the_first_call,
  reads_freed_memory,
  reads_freed_memory_when_strided,
};

// y = a b + bias: [4, 4], [4, 4], [4] -> [4, 4]
struct Scratch {
  static constexpr const char* name = "scratch";
  struct Saved {
    SavedTensor a, b, extra;
    const void* freed = nullptr;  // b, where it was
  };
  Plant plant;

  // What backward reads beside Saved.
  static Tensor& kept_b() {
    static Tensor b;
    return b;
  }
  void keep(Saved& saved, const Tensor& b) const {
    const Tensor& kept = kept_b();
    if (is(Plant::keeps_the_last_call) ||
        (is(Plant::keeps_the_first_call) && (!kept.defined() || kept.dtype() != b.dtype()))) {
      kept_b() = clone(b);
    }
    if (is(Plant::reads_freed_memory)) saved.freed = clone(b).view().data;
    if (is(Plant::reads_freed_memory_when_strided)) saved.freed = contiguous_copy(b).view().data;
  }
  Tensor b_of(const Saved& saved) const {
    if (is(Plant::keeps_the_last_call) || is(Plant::keeps_the_first_call)) return kept_b();
    Tensor b = saved.b.get(name);
    if (saved.freed == nullptr) return b;
    return visit_floating(b.dtype(), name, [&]<class T>(TypeTag<T>) {
      const T* from = static_cast<const T*>(saved.freed);
      const std::vector<T> there(from, from + b.numel());
      Tensor read = Tensor::empty(b.shape(), b.dtype());
      std::copy(there.begin(), there.end(), read.mutable_data<T>());
      return read;
    });
  }

  bool is(Plant p) const { return plant == p; }
  static constexpr std::int64_t kN = 4;

  template <class T>
  static T at(const Tensor& x, std::int64_t i, std::int64_t j) {
    return x.data<T>()[i * x.stride(0) + j * x.stride(1)];
  }

  template <class T>
  void product(const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& y) const {
    static std::int64_t calls = 0;
    const std::int64_t begin = is(Plant::nondeterministic_sum) ? ++calls : 0;
    T* out = y.mutable_data<T>();
    for (std::int64_t i = 0; i < kN; ++i) {
      for (std::int64_t j = 0; j < kN; ++j) {
        T sum = is(Plant::reads_uninitialised_memory) && i == j ? out[i * kN + j] : T(0);
        for (std::int64_t n = 0; n < kN; ++n) {
          const std::int64_t k = (begin + n) % kN;
          const T left = is(Plant::ignores_strides) ? a.data<T>()[i * kN + k] : at<T>(a, i, k);
          sum += left * (is(Plant::transposed_operand) ? at<T>(b, j, k) : at<T>(b, k, j));
        }
        out[i * kN + j] = sum + bias.data<T>()[j * bias.stride(0)];
      }
    }
  }

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& bias) const {
    check_inputs(name, {{"a", a}, {"b", b}, {"bias", bias}});
    Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
    saved.a.save_input(a);
    saved.b.save_input(b);
    if (is(Plant::saves_too_much)) saved.extra.save_output(y);
    static Tensors kept;
    if (is(Plant::leaks)) kept.push_back(y);
    if (a.device() == kMeta) return y;
    keep(saved, b);
    visit_floating(a.dtype(), name, [&]<class T>(TypeTag<T>) { product<T>(a, b, bias, y); });
    return y;
  }

  // da = dy b^T ; db = a^T dy ; dbias = sum over rows of dy
  template <class T>
  void gradients(const Tensor& a, const Tensor& b, const Tensor& dy,
                 std::array<Tensor, 3>& d) const {
    T *da = d[0].mutable_data<T>(), *db = d[1].mutable_data<T>(), *dbias = d[2].mutable_data<T>();
    for (std::int64_t i = 0; i < kN; ++i) {
      for (std::int64_t j = 0; j < kN; ++j) {
        T to_a = 0, to_b = 0;
        for (std::int64_t k = 0; k < kN; ++k) {
          const bool turned = is(Plant::transposed_operand_in_backward);
          to_a += at<T>(dy, i, k) * (turned ? at<T>(b, k, j) : at<T>(b, j, k));
          to_b += at<T>(a, k, i) * at<T>(dy, k, j);
        }
        da[i * kN + j] = is(Plant::wrong_sign) ? -to_a : to_a;
        db[i * kN + j] = to_b;
      }
    }
    const std::int64_t rows = is(Plant::missing_broadcast_sum) ? 1 : kN;
    for (std::int64_t j = 0; j < kN; ++j) {
      dbias[j] = 0;
      for (std::int64_t i = 0; i < rows; ++i) dbias[j] += at<T>(dy, i, j);
    }
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor& a = saved.a.get(name);
    std::array<Tensor, 3> d{Tensor::empty(dy.shape(), dy.dtype(), dy.device()),
                            Tensor::empty(dy.shape(), dy.dtype(), dy.device()),
                            Tensor::empty({kN}, dy.dtype(), dy.device())};
    if (dy.device() != kMeta) {
      const Tensor b = b_of(saved);
      visit_floating(dy.dtype(), name, [&]<class T>(TypeTag<T>) { gradients<T>(a, b, dy, d); });
    }
    if (is(Plant::missing_broadcast_sum_with_its_shape)) d[2] = dy;
    return d;
  }
};

OpCase row_with(Plant plant) {
  Scratch::kept_b() = Tensor();
  OpCase row;
  row.name = "scratch";
  row.inputs = {{4, 4}, {4, 4}, {4}};
  row.call = [plant](const Tensors& in) {
    return Tensors{apply(Scratch{plant}, in[0], in[1], in[2])};
  };
  row.oracle = [](const Tensors& in) {
    const Values a = elements(in[0]), b = elements(in[1]), bias = elements(in[2]);
    Values y(16);
    for (std::size_t i = 0; i < 16; ++i) {
      y[i] = bias[i % 4];
      for (std::size_t k = 0; k < 4; ++k) y[i] += a[i / 4 * 4 + k] * b[k * 4 + i % 4];
    }
    return Tensors{tensor_of({4, 4}, y)};
  };
  row.saved_bytes = 2 * 16 * 4;
  row.exact_on_integers = true;
  return row;
}

struct Planted {
  const char* name;
  Plant plant;
  const char *kind, *check;
};

const Planted kPlanted[] = {
    {"WrongSign", Plant::wrong_sign, "wrong sign of the gradient of input 0", "gradients"},
    {"MissingBroadcastSum", Plant::missing_broadcast_sum,
     "missing broadcast sum in the gradient of input 2", "gradients"},
    {"MissingBroadcastSumWithItsShape", Plant::missing_broadcast_sum_with_its_shape,
     "missing broadcast sum: a gradient has not the shape of its input", "repeated runs"},
    {"TransposedOperand", Plant::transposed_operand, "transposed operand: input 1 in the forward",
     "oracle"},
    {"TransposedOperandInBackward", Plant::transposed_operand_in_backward,
     "transposed operand in the gradient of input 0", "gradients"},
    {"IgnoresStrides", Plant::ignores_strides, "ignores strides", "strides"},
    {"ReadsUninitialisedMemory", Plant::reads_uninitialised_memory, "reads uninitialised memory",
     ""},
    {"NondeterministicSum", Plant::nondeterministic_sum, "not deterministic", "repeated runs"},
    {"SavesTooMuch", Plant::saves_too_much, "saves too much", "saved bytes"},
    {"Leaks", Plant::leaks, "leak", "leaks"},
    {"KeepsTheLastCall", Plant::keeps_the_last_call, "keeps state between calls", "two calls"},
    {"KeepsTheFirstCall", Plant::keeps_the_first_call, "keeps state between calls", "two calls"},
    {"ReadsFreedMemory", Plant::reads_freed_memory, "reads freed memory", "same bits"},
    {"ReadsFreedMemoryWhenStrided", Plant::reads_freed_memory_when_strided,
     "reads memory that is freed", "strides"},
};

void PrintTo(const Planted& p, std::ostream* out) { *out << p.name; }

class PlantedFaults : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFaults, AreFoundAndNamed) {
  const Planted& planted = GetParam();
  const std::optional<Fault> fault = first_fault(row_with(planted.plant));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind.rfind(planted.kind, 0), 0U) << fault->kind << ": " << fault->message;
  if (*planted.check != '\0') {
    EXPECT_EQ(fault->check, planted.check) << fault->message;
  }
  EXPECT_EQ(fault->message.rfind("scratch", 0), 0U) << fault->message;
}

INSTANTIATE_TEST_SUITE_P(Scratch, PlantedFaults, testing::ValuesIn(kPlanted),
                         [](const auto& p) { return std::string(p.param.name); });

// y = log(sum(exp(x))) of each row, as it stands there or without overflow.
struct LogSumExp {
  static constexpr const char* name = "log_sum_exp";
  struct Saved {
    SavedTensor x;
  };
  bool subtracts_the_largest, in_forward;

  template <class T>
  T offset(const T* x, std::int64_t width, bool forward) const {
    return subtracts_the_largest || forward != in_forward ? *std::max_element(x, x + width) : T(0);
  }
  Tensor forward(Saved& saved, const Tensor& in) const {
    check_inputs(name, {{"x", in}});
    saved.x.save_input(in);
    Tensor out = Tensor::empty({in.size(0)}, in.dtype(), in.device());
    const Tensor copy_of_x = contiguous_copy(in);
    if (in.device() == kMeta) return out;
    visit_floating(in.dtype(), name, [&]<class T>(TypeTag<T>) {
      const std::int64_t width = in.size(1);
      for (std::int64_t i = 0; i < in.size(0); ++i) {
        const T* x = copy_of_x.data<T>() + i * width;
        const T most = offset(x, width, /*forward=*/true);
        T total = 0;
        for (std::int64_t j = 0; j < width; ++j) total += std::exp(x[j] - most);
        out.mutable_data<T>()[i] = most + std::log(total);
      }
    });
    return out;
  }
  // dx = exp(x) / sum(exp(x)) dy
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor in = contiguous_copy(saved.x.get(name));
    Tensor dx = Tensor::empty(in.shape(), in.dtype(), in.device());
    if (in.device() == kMeta) return dx;
    visit_floating(in.dtype(), name, [&]<class T>(TypeTag<T>) {
      const std::int64_t width = in.size(1);
      for (std::int64_t i = 0; i < in.size(0); ++i) {
        const T* x = in.data<T>() + i * width;
        const T most = offset(x, width, /*forward=*/false), d = dy.data<T>()[i * dy.stride(0)];
        T total = 0;
        for (std::int64_t j = 0; j < width; ++j) total += std::exp(x[j] - most);
        for (std::int64_t j = 0; j < width; ++j) {
          dx.mutable_data<T>()[i * width + j] = std::exp(x[j] - most) / total * d;
        }
      }
    });
    return dx;
  }
};

OpCase log_sum_exp_row(bool subtracts_the_largest, bool in_forward) {
  OpCase row;
  row.name = "log_sum_exp";
  row.inputs = {{3, 5}};
  row.call = [=](const Tensors& in) {
    return Tensors{apply(LogSumExp{subtracts_the_largest, in_forward}, in[0])};
  };
  row.oracle = [](const Tensors& in) {
    const Values x = elements(in[0]);
    Values y(static_cast<std::size_t>(in[0].size(0)));
    for (std::size_t i = 0; i < x.size(); ++i) y[i / 5] += std::exp(x[i]);  // fits double
    for (double& v : y) v = std::log(v);
    return Tensors{tensor_of({in[0].size(0)}, y)};
  };
  row.low = -3;
  row.high = 3;
  row.saved_bytes = 15 * 4;
  row.specials = Specials::none;  // not in question here
  return row;
}

TEST(PlantedFaults, OverflowIsFoundForwardAndBackward) {
  for (const bool in_forward : {true, false}) {
    const std::optional<Fault> fault = first_fault(log_sum_exp_row(false, in_forward));
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->kind, "overflows on large inputs") << fault->message;
    EXPECT_EQ(fault->message.rfind("log_sum_exp on inputs up to 100, f32: ", 0), 0U)
        << fault->message;
  }
  const std::optional<Fault> fault = first_fault(log_sum_exp_row(true, true));
  EXPECT_FALSE(fault.has_value()) << fault->kind << ": " << fault->message;
}

TEST(PlantedFaults, LargeInputsAreLoweredWithAReason) {
  OpCase row = log_sum_exp_row(false, true);
  row.large = 40;
  EXPECT_NE(check_large_inputs(row).find("large_why"), std::string::npos);
  row.large_why = "exp(x) has to fit f32";
  EXPECT_EQ(check_large_inputs(row), "");
}

TEST(PlantedFaults, NoneIsFoundInTheRightOp) {
  const std::optional<Fault> fault = first_fault(row_with(Plant::none));
  EXPECT_FALSE(fault.has_value()) << fault->kind << ": " << fault->message;
}

}  // namespace
}  // namespace duet::test
