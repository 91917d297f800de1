// What `duet op new` writes. @name@ becomes the op's name, @Name@ the type's, @says@ what it
// computes. Every skeleton compiles; the op and its oracle throw until their maths is written.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace duet {

inline std::string fill_template(std::string_view form, std::string_view name,
                                 std::string_view type, std::string_view says) {
  const std::pair<std::string_view, std::string_view> places[] = {
      {"@name@", name}, {"@Name@", type}, {"@says@", says}};
  std::string out;
  for (std::size_t i = 0; i < form.size();) {
    const auto* place = std::find_if(std::begin(places), std::end(places), [&](const auto& p) {
      return form.substr(i, p.first.size()) == p.first;
    });
    if (place == std::end(places)) {
      out += form[i++];
    } else {
      out += place->second;
      i += place->first.size();
    }
  }
  return out;
}

// --- ops/ops.h
inline constexpr std::string_view kUnaryLine = R"(// @says@
Tensor @name@(const Tensor& x);  // [*] -> [*]
)";
inline constexpr std::string_view kBinaryLine = R"(// @says@
Tensor @name@(const Tensor& a, const Tensor& b);  // [*], [*] -> [*], broadcasting
)";
inline constexpr std::string_view kRowsLine = R"(// @says@
Tensor @name@(const Tensor& x);  // [*, C] -> [*, C]
)";

// --- ops/pointwise/NAME.cu
inline constexpr std::string_view kUnary = R"(// @name@(x): @says@
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace duet {
namespace {

struct @Name@ {
  static constexpr const char* name = "@name@";
  static constexpr UnaryF32 vector_f = nullptr;  // plain loops; pointwise/silu.h has vector ones
  static constexpr UnaryGradF32 vector_df = nullptr;

  // y = f(x)
  template <class T>
  DUET_HD static T f(T x) {
    return x;
  }
  // f'(x), also of dual numbers (for second derivatives): `using std::exp; exp(x)`, no std::exp(x)
  template <class T>
  DUET_HD static T df([[maybe_unused]] T x) {
    return T(1);
  }
};

}  // namespace

Tensor @name@(const Tensor& x) {
  throw Error(ErrorKind::usage,
              "@name@: the maths is missing: write f and df in "
              "ops/pointwise/@name@.cu, then delete this line");
  return pointwise<@Name@>(x);
}

}  // namespace duet
)";

inline constexpr std::string_view kBinary = R"(// @name@(a, b): @says@
#include "ops/ops.h"
#include "ops/pointwise/pointwise_binary.h"

namespace duet {
namespace {

struct @Name@ {
  static constexpr const char* name = "@name@";
  static constexpr BinaryF32 vector_f = nullptr;  // plain loops; pointwise/mul.cu has vector ones

  // y = f(a, b)
  template <class T>
  DUET_HD static T f(T a, [[maybe_unused]] T b) {
    return a;
  }
  // df/da and df/db, also of dual numbers (for second derivatives): `using std::exp; exp(a)`
  template <class T>
  DUET_HD static T da([[maybe_unused]] T a, [[maybe_unused]] T b) {
    return T(1);
  }
  template <class T>
  DUET_HD static T db([[maybe_unused]] T a, [[maybe_unused]] T b) {
    return T(0);
  }
};

}  // namespace

Tensor @name@(const Tensor& a, const Tensor& b) {
  throw Error(ErrorKind::usage,
              "@name@: the maths is missing: write f, da and db in "
              "ops/pointwise/@name@.cu, then delete this line");
  return pointwise<@Name@>(a, b);
}

}  // namespace duet
)";

// --- ops/NAME/
inline constexpr std::string_view kKernelsHeader =
    R"(// Kernels of @name@. x, y, dy, dx: [N, C] without gaps.
#pragma once

#include "runtime/view.h"

namespace duet {

struct @Name@Kernels {
  void (*forward)(ConstView x, View y);
  void (*backward)(ConstView x, ConstView dy, View dx);
};

extern const @Name@Kernels @name@_cpu;
extern const @Name@Kernels @name@_cuda;  // f32

}  // namespace duet
)";

inline constexpr std::string_view kKernelsOp = R"(#include "ops/@name@/@name@.h"

#include "autograd/op.h"
#include "ops/check_inputs.h"
#include "ops/ops.h"
#include "ops/row_loop.h"
#include "runtime/kernel_table.h"
#include "runtime/memory_ops.h"

namespace duet {
namespace {

constexpr KernelTable<@Name@Kernels> kernels{
    "@name@",
    &@name@_cpu,
    DUET_CUDA_TABLE(@name@_cuda),
};

struct @Name@ {
  static constexpr const char* name = "@name@";
  struct Saved {
    SavedTensor x;
  };

  // y = the formula, per row
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x.save_input(x);
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
    const Tensor input = contiguous_copy(x);
    kernels.launch(x.device(), &@Name@Kernels::forward, input.view(), y.mutable_view());
    return y;
  }

  // dx = the formula, per row
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor x = contiguous_copy(saved.x.get(name));
    const Tensor grad = contiguous_copy(dy);
    Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    const auto launch = &@Name@Kernels::backward;
    kernels.launch(x.device(), launch, x.view(), grad.view(), dx.mutable_view());
    return dx;
  }
};

}  // namespace

Tensor @name@(const Tensor& x) {
  throw Error(ErrorKind::usage,
              "@name@: the maths is missing: write forward_row and backward_row "
              "in ops/@name@/@name@_cpu.cpp and "
              "@name@.cu, then delete this line");
  check_inputs("@name@", {{"x", x}});
  const bool has_rows = x.ndim() >= 1;
  check(has_rows, ErrorKind::shape, "@name@: x has no dimension: got ", x.shape(),
        ", expected [..., C]");
  return apply(@Name@{}, x);
}

}  // namespace duet
)";

inline constexpr std::string_view kKernelsCpu =
    R"(// @name@ on the CPU: plain loops for f32 and f64; softmax_cpu.cpp has vector ones.
#include <cmath>
#include <numeric>

#include "ops/@name@/@name@.h"
#include "ops/row_loop.h"

namespace duet {
namespace {

template <class T>
void forward_row(const T* x, T* y, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) y[j] = x[j];
}

template <class T>
void backward_row([[maybe_unused]] const T* x, const T* dy, T* dx, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) dx[j] = dy[j];
}

void forward(ConstView x, View y) {
  const std::int64_t width = x.shape.back();
  visit_floating(x.dtype, "@name@", [&]<class T>(TypeTag<T>) {
    for_rows(x.shape, [&](std::int64_t i) {
      forward_row(x.as<T>() + i * width, y.as<T>() + i * width, width);
    });
  });
}

void backward(ConstView x, ConstView dy, View dx) {
  const std::int64_t width = x.shape.back();
  visit_floating(x.dtype, "@name@", [&]<class T>(TypeTag<T>) {
    for_rows(x.shape, [&](std::int64_t i) {
      backward_row(x.as<T>() + i * width, dy.as<T>() + i * width, dx.as<T>() + i * width, width);
    });
  });
}

}  // namespace

extern const @Name@Kernels @name@_cpu{forward, backward};

}  // namespace duet
)";

inline constexpr std::string_view kKernelsCuda =
    R"(// @name@ on CUDA: a block of threads per row; softmax.cu has short rows in registers.
#include "ops/@name@/@name@.h"
#include "runtime/cuda/block.cuh"

namespace duet {
namespace {

constexpr int kThreads = 128;  // of a block

// All threads of a block call the two, each for every kThreads-th element of the row. A sum over
// the row is cuda::block_reduce<cuda::Sum, kThreads>(the thread's part), which every thread calls.
__device__ void forward_row(const float* x, float* y, std::int64_t width) {
  for (std::int64_t j = threadIdx.x; j < width; j += kThreads) y[j] = x[j];
}

__device__ void backward_row([[maybe_unused]] const float* x, const float* dy, float* dx,
                             std::int64_t width) {
  for (std::int64_t j = threadIdx.x; j < width; j += kThreads) dx[j] = dy[j];
}

__global__ void @name@_kernel(const float* x, float* y, std::int64_t rows,
                              std::int64_t width) {
  for (std::int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    forward_row(x + i * width, y + i * width, width);
  }
}

__global__ void @name@_gradient_kernel(const float* x, const float* dy, float* dx,
                                       std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    backward_row(x + i * width, dy + i * width, dx + i * width, width);
  }
}

void forward(ConstView x, View y) {
  if (x.numel() == 0) return;
  const std::int64_t width = x.size(-1), rows = x.numel() / width;
  const auto blocks = cuda::blocks_for(rows, 1);
  GPU_LAUNCH(@name@_kernel, blocks, kThreads, 0, x.as<float>(), y.as<float>(), rows, width);
}

void backward(ConstView x, ConstView dy, View dx) {
  if (x.numel() == 0) return;
  const std::int64_t width = x.size(-1), rows = x.numel() / width;
  const auto blocks = cuda::blocks_for(rows, 1);
  GPU_LAUNCH(@name@_gradient_kernel, blocks, kThreads, 0, x.as<float>(), dy.as<float>(),
             dx.as<float>(), rows, width);
}

}  // namespace

extern const @Name@Kernels @name@_cuda{forward, backward};

}  // namespace duet
)";

// --- tests/ops/NAME_cases.cpp
inline constexpr std::string_view kUnaryRow = R"(// Rows of @name@.
#include <cmath>

#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

// The oracle: one element in double, written apart from the op.
double oracle_of([[maybe_unused]] double x) {
  throw Error(ErrorKind::usage,
              "@name@: the oracle is missing: write it in "
              "tests/ops/@name@_cases.cpp");
}

OpCase row_of(const std::string& name, const Shape& x) {
  OpCase row;
  row.name = name;
  row.inputs = {x};
  row.call = [](const Tensors& in) { return Tensors{@name@(in[0])}; };
  row.oracle = [](const Tensors& in) {
    Values y = elements(in[0]);
    for (double& v : y) v = oracle_of(v);
    return Tensors{tensor_of(in[0].shape(), y)};
  };
  row.low = -3;
  row.high = 3;
  row.bench = {{1024, 1024}};       // f32 inputs on which `duet op check` times it
  row.saved_bytes = x.numel() * 4;  // x
  row.empty_ok = x.ndim() > 0;
  return row;
}

}  // namespace

std::vector<OpCase> @name@_cases() {
  return {
      row_of("@name@", {3, 5}),
      row_of("@name@_odd", {3, 37}),
      row_of("@name@_0d", {}),
  };
}

}  // namespace duet::test
)";

inline constexpr std::string_view kBinaryRow = R"(// Rows of @name@.
#include <cmath>

#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

// The oracle: one pair of elements in double, written apart from the op.
double oracle_of([[maybe_unused]] double a, [[maybe_unused]] double b) {
  throw Error(ErrorKind::usage,
              "@name@: the oracle is missing: write it in "
              "tests/ops/@name@_cases.cpp");
}

OpCase row_of(const std::string& name, const Shape& a, const Shape& b) {
  OpCase row;
  row.name = name;
  row.inputs = {a, b};
  row.call = [](const Tensors& in) { return Tensors{@name@(in[0], in[1])}; };
  row.oracle = [](const Tensors& in) {
    const Shape shape = broadcast_shapes(in[0].shape(), in[1].shape(), "oracle");
    const Values a_values = elements(in[0]), b_values = elements(in[1]);
    Values y(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Dims at = index_of(shape, static_cast<std::int64_t>(i));
      const double a_value = a_values[position(in[0].shape(), at)];
      y[i] = oracle_of(a_value, b_values[position(in[1].shape(), at)]);
    }
    return Tensors{tensor_of(shape, y)};
  };
  row.low = -3;  // of both
  row.high = 3;
  row.bench = {{1024, 1024}, {1024, 1024}};  // on which `duet op check` times it
  row.saved_bytes = (a.numel() + b.numel()) * 4;
  row.empty_ok = a.ndim() > 0 && a.ndim() >= b.ndim();
  row.broadcasts = a == b;
  return row;
}

}  // namespace

std::vector<OpCase> @name@_cases() {
  return {
      row_of("@name@", {3, 5}, {3, 5}),
      row_of("@name@_scalar", {3, 5}, {}),
      row_of("@name@_row", {4, 5}, {5}),
      row_of("@name@_column", {4, 37}, {4, 1}),
  };
}

}  // namespace duet::test
)";

inline constexpr std::string_view kKernelsRow = R"(// Rows of @name@.
#include <cmath>
#include <numeric>

#include "ops/row_loop.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/oracle.h"

namespace duet::test {
namespace {

// The oracle: one row in double, written apart from the op. Returns the output row.
Values oracle_of([[maybe_unused]] const Values& x) {
  throw Error(ErrorKind::usage,
              "@name@: the oracle is missing: write it in "
              "tests/ops/@name@_cases.cpp");
}

OpCase row_of(const std::string& name, const Shape& x) {
  OpCase row;
  row.name = name;
  row.inputs = {x};
  row.call = [](const Tensors& in) { return Tensors{@name@(in[0])}; };
  row.oracle = [](const Tensors& in) {
    const Values x_values = elements(in[0]);
    Values y;
    for (auto at = x_values.begin(); at != x_values.end(); at += in[0].size(-1)) {
      const Values out = oracle_of(Values(at, at + in[0].size(-1)));
      y.insert(y.end(), out.begin(), out.end());
    }
    return Tensors{tensor_of(in[0].shape(), y)};  // one number a row: without_last(shape)
  };
  row.low = -3;
  row.high = 3;
  row.bench = {{1024, 1024}};       // f32 inputs on which `duet op check` times it
  row.saved_bytes = x.numel() * 4;  // x
  row.empty_ok = x.ndim() > 1;      // rows without elements: if the op knows what they give
  return row;
}

}  // namespace

std::vector<OpCase> @name@_cases() {
  return {
      row_of("@name@", {2, 3, 5}),
      row_of("@name@_odd", {4, 37}),
      row_of("@name@_1d", {8}),
  };
}

}  // namespace duet::test
)";

}  // namespace duet
