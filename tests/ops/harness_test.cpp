// The checks are checked: an op with one fault at a time, which the check meant for it must report.
#include "tests/ops/harness.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/op.h"
#include "runtime/strided.h"
#include "tests/ops/checks.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

enum class Fault {
  none,
  wrong_gradient,
  vanishing_gradient,
  reads_past_strides,
  reads_gradient_past_strides,
  skips_an_element,
  counts_calls,
  saves_too_much,
  inexact_in_f32,
  inexact_gradient_in_f32,
  rounds_integers,
  takes_any_dtype,
  names_no_op,
  overwrites_the_buffer,
  needs_both_gradients,
  divides_by_size_less_one,
  forgets_meta,
  allocates_on_cpu_alone,
};

// y = a^2 + 3 b, elementwise; one fault.
struct Faulty {
  static constexpr const char* name = "faulty";
  struct Saved {
    SavedTensor a, extra;
  };
  Fault fault;

  bool is(Fault f) const { return fault == f; }

  template <class T>
  static std::vector<double> read(const Tensor& t) {
    std::vector<double> v;
    for_each_row<1>(t.shape(), {t.strides()}, [&](auto at, std::int64_t n, auto step) {
      for (std::int64_t i = 0; i < n; ++i) {
        v.push_back(static_cast<double>(t.data<T>()[at[0] + i * step[0]]));
      }
    });
    return v;
  }

  template <class T>
  Tensor compute(const Tensor& a, const Tensor& b) const {
    Tensor y = Tensor::empty(a.shape(), a.dtype(), is(Fault::forgets_meta) ? kCpu : a.device());
    if (a.device() == kMeta) return y;
    Tensor workspace;
    if (is(Fault::allocates_on_cpu_alone)) workspace = Tensor::empty({1 << 16}, a.dtype());
    const auto va = read<T>(a), vb = read<T>(b);
    T* out = y.mutable_data<T>();
    static int calls = 0;
    const double drift = is(Fault::counts_calls) ? 1e-7 * ++calls : 0;
    for (std::int64_t i = is(Fault::skips_an_element) ? 1 : 0; i < y.numel(); ++i) {
      double u = va[static_cast<std::size_t>(i)];
      if (is(Fault::reads_past_strides)) u = static_cast<double>(a.data<T>()[i]);
      double v = u * u + 3 * vb[static_cast<std::size_t>(i)] + drift;
      if (is(Fault::inexact_in_f32) && sizeof(T) == 4) v *= 1.001;
      if (is(Fault::rounds_integers)) v += 1e-13;
      if (is(Fault::divides_by_size_less_one)) v /= static_cast<double>(a.size(0) - 1);
      out[i] = static_cast<T>(v);
    }
    return y;
  }

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    if (!is(Fault::takes_any_dtype)) {
      check(a.device() == b.device(), ErrorKind::device, "faulty: devices differ");
      check(is_floating(a.dtype()) && a.dtype() == b.dtype(), ErrorKind::dtype,
            is(Fault::names_no_op) ? "wrong" : "faulty", ": dtypes differ or are not floating");
    }
    if (a.dtype() != b.dtype()) return Tensor::zeros(a.shape(), a.dtype());
    saved.a.save_input(a);
    if (is(Fault::saves_too_much)) saved.extra.save_input(b);
    return a.dtype() == DType::f32 ? compute<float>(a, b) : compute<double>(a, b);
  }

  template <class T>
  std::array<Tensor, 2> gradients(const Tensor& a, const Tensor& dy, const GradRequest& r) const {
    Tensor da = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
    Tensor db = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
    if (dy.device() == kMeta) return {da, db};
    const auto va = read<T>(a), vdy = read<T>(dy);
    T* pa = da.mutable_data<T>();
    T* pb = db.mutable_data<T>();
    for (std::int64_t i = 0; i < dy.numel(); ++i) {
      const auto k = static_cast<std::size_t>(i);
      double d = vdy[k];
      if (is(Fault::reads_gradient_past_strides)) d = static_cast<double>(dy.data<T>()[i]);
      double g = 2 * va[k] * d;
      if (is(Fault::wrong_gradient)) g += 1e-3;
      if (is(Fault::vanishing_gradient)) g = 0;
      if (is(Fault::inexact_gradient_in_f32) && sizeof(T) == 4) g *= 1.01;
      pa[i] = static_cast<T>(g);
      pb[i] = static_cast<T>(3 * d);
    }
    if (is(Fault::overwrites_the_buffer) && r.accumulator(0).defined()) {
      Tensor buffer = r.accumulator(0);
      std::copy(pa, pa + da.numel(), buffer.mutable_data<T>());
      return {buffer, db};
    }
    if (is(Fault::needs_both_gradients) && !(r.needed(0) && r.needed(1))) return {db, da};
    return {da, db};
  }

  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dy, const GradRequest& r) const {
    const Tensor& a = saved.a.get(name);
    return dy.dtype() == DType::f32 ? gradients<float>(a, dy, r) : gradients<double>(a, dy, r);
  }
};

OpCase row_with(Fault fault) {
  OpCase row;
  row.name = "faulty";
  row.inputs = {{3, 4}, {3, 4}};
  row.call = [fault](const Tensors& in) { return Tensors{apply(Faulty{fault}, in[0], in[1])}; };
  row.oracle = [fault](const Tensors& in) {
    Values y = elements(in[0]);
    const Values b = elements(in[1]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = y[i] * y[i] + 3 * b[i];
      if (fault == Fault::divides_by_size_less_one) y[i] /= 2;  // right for three rows alone
    }
    return Tensors{tensor_of(in[0].shape(), y)};
  };
  if (fault == Fault::vanishing_gradient) {
    row.call = [](const Tensors& in) {
      return Tensors{apply(Faulty{Fault::vanishing_gradient}, scale(in[0], 1e-9), in[1])};
    };
  }
  row.saved_bytes = 48;
  row.exact_on_integers = true;
  row.empty_ok = true;
  return row;
}

using Check = std::string (*)(const OpCase&);

struct Catch {
  const char* name;
  Fault fault;
  Check check;
  const char* text;  // part of the message
};

const Catch kCatches[] = {
    {"Gradients", Fault::wrong_gradient, check_gradients, "gradient of input 0"},
    {"WrongGradients", Fault::vanishing_gradient, check_wrong_gradients_are_caught,
     "does not notice"},
    {"Strides", Fault::reads_past_strides, check_strides, "input 0 transposed"},
    {"StridedCotangents", Fault::reads_gradient_past_strides, check_strided_cotangents,
     "gapped grad_output"},
    {"OutputsUsedTwice", Fault::counts_calls, check_outputs_used_twice, "outputs used twice"},
    {"PoisonedMemory", Fault::skips_an_element, check_same_bits, "full of NaN"},
    {"SameBits", Fault::counts_calls, check_same_bits, "second run"},
    {"SavedBytes", Fault::saves_too_much, check_saved_bytes, "saves 96 bytes"},
    {"OracleForward", Fault::inexact_in_f32, check_oracle, "in f32: output 0"},
    {"OracleGradient", Fault::inexact_gradient_in_f32, check_oracle, "in f32: gradient of input 0"},
    {"Integers", Fault::rounds_integers, check_integers, "on integers"},
    {"Errors", Fault::takes_any_dtype, check_errors, "was accepted"},
    {"ErrorsNameTheOp", Fault::names_no_op, check_errors, "does not begin with the op"},
    {"Accumulation", Fault::overwrites_the_buffer, check_accumulation, "added to 0.5"},
    {"SingleGradients", Fault::needs_both_gradients, check_single_gradients, "only input 0"},
    {"SmallSizes", Fault::divides_by_size_less_one, check_small_sizes, "size 1 in dim 0"},
    {"Meta", Fault::forgets_meta, check_meta, "on meta: output 0"},
    {"MetaPlan", Fault::allocates_on_cpu_alone, check_meta, "forward on meta takes"},
};

void PrintTo(const Catch& c, std::ostream* out) { *out << c.name; }

class Harness : public testing::TestWithParam<Catch> {};

TEST_P(Harness, CatchesTheFault) {
  const Catch& c = GetParam();
  const std::string fault = c.check(row_with(c.fault));
  EXPECT_NE(fault.find(c.text), std::string::npos) << "got: " << fault;
  EXPECT_EQ(fault.rfind("faulty", 0), 0U) << "names the row first: " << fault;
}

TEST_P(Harness, AcceptsTheRightOp) { EXPECT_EQ(GetParam().check(row_with(Fault::none)), ""); }

INSTANTIATE_TEST_SUITE_P(Checks, Harness, testing::ValuesIn(kCatches),
                         [](const auto& param) { return param.param.name; });

TEST(Harness, ALargeOpIsCheckedAlongDirections) {
  for (const Fault fault : {Fault::none, Fault::wrong_gradient}) {
    OpCase row = row_with(fault);
    row.inputs = {{40, 50}, {40, 50}};
    EXPECT_EQ(check_gradients(row).empty(), fault == Fault::none);
  }
}

TEST(Harness, AMissingGoldenEntryIsReported) {
  OpCase row = row_with(Fault::none);
  row.golden = "no_such_op";
  EXPECT_NE(check_golden(row).find("has no entry no_such_op"), std::string::npos);
  row.golden = "mul";  // another op's values
  EXPECT_NE(check_golden(row).find("against the golden file: output 0"), std::string::npos);
}

TEST(Harness, ComparisonNamesElementGotAndExpected) {
  const Tensor got = tensor_of({2, 2}, {1, 2, 3.5, 4});
  const Tensor want = tensor_of({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(compare("op", got, got, {}), "");
  EXPECT_EQ(compare("op", got, want, {0, 0.1}),
            "op: element [1, 0]: got 3.5, expected 3 (difference 0.5, allowed 0.1 + 0 relative); "
            "1 of 4 elements are off");
  const Tensor bad = tensor_of({2, 2}, {1, 2, std::nan(""), 4});
  EXPECT_NE(compare("op", bad, want, {1, 1}), "");
  EXPECT_NE(compare("op", want, bad, {1, 1}), "");
  EXPECT_EQ(compare("op", bad, bad, {}), "");
  const Tensor infinite = tensor_of({2, 2}, {1, 2, INFINITY, 4});
  EXPECT_NE(compare("op", want, infinite, {1, 1}), "");
  EXPECT_EQ(compare("op", got, tensor_of({4}, {1, 2, 3, 4}), {}),
            "op: got shape [2, 2], expected [4]");
}

}  // namespace
}  // namespace duet::test
