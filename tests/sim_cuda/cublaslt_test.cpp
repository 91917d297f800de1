// The fake cublasLt: right products with every epilogue that it knows, and every planted misuse
// ends in one line and exit status 42.
#include <cublasLt.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/runtime.h"

namespace sim {
namespace {

void succeed(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }
void succeed(cublasStatus_t status) {
  EXPECT_EQ(status, CUBLAS_STATUS_SUCCESS) << cublasLtGetStatusString(status);
}

void expect_failure(const std::function<void()>& program, const std::string& words) {
  EXPECT_EXIT(program(), testing::ExitedWithCode(kExitStatus), "sim_cuda: .*" + words);
}

// Device memory that holds floats.
class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& values) : size_(values.size()) {
    void* data = nullptr;
    succeed(cudaMalloc(&data, bytes()));
    data_ = static_cast<float*>(data);
    succeed(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~DeviceFloats() { cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  float* data() const { return data_; }
  std::vector<float> values() const {
    std::vector<float> host(size_);
    succeed(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(float); }
  std::size_t size_;
  float* data_ = nullptr;
};

// One matrix of a product, as cublasLt is told of it.
struct Operand {
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t ld;
  std::int64_t stride = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;

  std::size_t element(std::size_t batch, std::size_t i, std::size_t j) const {
    const auto step = static_cast<std::size_t>(ld);
    return batch * static_cast<std::size_t>(stride) +
           (order == CUBLASLT_ORDER_COL ? i + j * step : i * step + j);
  }
};

// A product and everything a test may want to be wrong about it.
struct Product {
  Operand a;
  Operand b;
  Operand d;  // and C
  bool ta = false;
  bool tb = false;
  std::int32_t batch = 1;
  float alpha = 1;
  float beta = 0;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t input = CUDA_R_32F;
  std::uint32_t alignment = 4;
  std::uint64_t workspace = 0;      // allowed when the algorithm is chosen
  std::size_t workspace_given = 0;  // when it runs
  std::int64_t ld_when_run = 0;     // of A, if another than when the algorithm was chosen
};

template <class T>
void set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t attribute, T value) {
  succeed(cublasLtMatmulDescSetAttribute(op, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  succeed(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  succeed(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof value));
}

cublasLtMatrixLayout_t layout_of(const Operand& o, std::int32_t batch, cudaDataType_t type) {
  cublasLtMatrixLayout_t layout = nullptr;
  succeed(cublasLtMatrixLayoutCreate(&layout, type, o.rows, o.cols, o.ld));
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, o.stride);
  set(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, o.order);
  return layout;
}

cublasLtMatmulDesc_t description_of(const Product& p) {
  cublasLtMatmulDesc_t op = nullptr;
  succeed(cublasLtMatmulDescCreate(&op, p.compute, CUDA_R_32F));
  set(op, CUBLASLT_MATMUL_DESC_TRANSA, p.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(op, CUBLASLT_MATMUL_DESC_TRANSB, p.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(op, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  set(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  set(op, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.bias_stride);
  set(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
  set(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_ld);
  return op;
}

// As the product calls the library: descriptors, algorithm, product, on the default stream.
void run(const Product& p, const void* a_data, const void* b_data, const void* c_data,
         void* d_data) {
  cublasLtHandle_t handle = nullptr;
  succeed(cublasLtCreate(&handle));
  const cublasLtMatmulDesc_t op = description_of(p);
  const cublasLtMatrixLayout_t a = layout_of(p.a, p.batch, p.input);
  const cublasLtMatrixLayout_t b = layout_of(p.b, p.batch, p.input);
  const cublasLtMatrixLayout_t d = layout_of(p.d, p.batch, CUDA_R_32F);
  cublasLtMatmulPreference_t wish = nullptr;
  succeed(cublasLtMatmulPreferenceCreate(&wish));
  set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.workspace);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(wish, attribute, p.alignment);
  }
  cublasLtMatmulHeuristicResult_t chosen;
  int count = 0;
  succeed(cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, d, d, wish, 1, &chosen, &count));
  EXPECT_EQ(count, 1);
  void* workspace = nullptr;
  succeed(cudaMalloc(&workspace, p.workspace_given));
  if (p.ld_when_run != 0) set(a, CUBLASLT_MATRIX_LAYOUT_LD, p.ld_when_run);
  succeed(cublasLtMatmul(handle, op, &p.alpha, a_data, a, b_data, b, &p.beta, c_data, d, d_data, d,
                         &chosen.algo, workspace, p.workspace_given, nullptr));
  succeed(cudaDeviceSynchronize());
  succeed(cudaFree(workspace));
  succeed(cublasLtMatmulPreferenceDestroy(wish));
  for (const auto layout : {a, b, d}) succeed(cublasLtMatrixLayoutDestroy(layout));
  succeed(cublasLtMatmulDescDestroy(op));
  succeed(cublasLtDestroy(handle));
}

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Operands of 4096 random floats each, so that layouts may have gaps.
struct Data {
  std::vector<float> a = random_values(4096, 1);
  std::vector<float> b = random_values(4096, 2);
  std::vector<float> c = random_values(4096, 3);
  std::vector<float> bias = random_values(256, 4);
  std::vector<float> aux = random_values(4096, 5);
};

double tanh_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// alpha op(A) op(B) + beta C by the definition.
double element_of(const Product& p, const Data& data, std::size_t batch, std::size_t i,
                  std::size_t j) {
  const std::size_t k = p.ta ? p.a.rows : p.a.cols;
  double sum = 0;
  for (std::size_t l = 0; l < k; ++l) {
    sum += double{data.a[p.ta ? p.a.element(batch, l, i) : p.a.element(batch, i, l)]} *
           double{data.b[p.tb ? p.b.element(batch, j, l) : p.b.element(batch, l, j)]};
  }
  return double{p.alpha} * sum + double{p.beta} * double{data.c[p.d.element(batch, i, j)]};
}

// Runs in place on C and compares; elements in the gaps must stay as they were.
void expect_right(const Product& p, const std::function<double(double, std::size_t)>& then) {
  const Data data;
  const DeviceFloats a(data.a);
  const DeviceFloats b(data.b);
  const DeviceFloats d(data.c);
  run(p, a.data(), b.data(), d.data(), d.data());
  const std::vector<float> got = d.values();
  std::vector<double> expected(data.c.begin(), data.c.end());
  for (std::size_t batch = 0; batch < static_cast<std::size_t>(p.batch); ++batch) {
    for (std::size_t i = 0; i < p.d.rows; ++i) {
      for (std::size_t j = 0; j < p.d.cols; ++j) {
        expected[p.d.element(batch, i, j)] = then(element_of(p, data, batch, i, j), i);
      }
    }
  }
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}
void expect_right(const Product& p) {
  expect_right(p, [](double x, std::size_t /*row*/) { return x; });
}

constexpr std::size_t kM = 13;
constexpr std::size_t kN = 22;
constexpr std::size_t kK = 9;

// op(A) [m, k], op(B) [k, n], D [m, n], column-major, with gaps.
Product example(bool ta, bool tb) {
  Product p;
  p.a = ta ? Operand{kK, kM, 16} : Operand{kM, kK, 16};
  p.b = tb ? Operand{kN, kK, 32} : Operand{kK, kN, 32};
  p.d = {kM, kN, 24};
  p.ta = ta;
  p.tb = tb;
  return p;
}

// The product looks it up by the name of NVIDIA's library.
TEST(SimCublasLt, IsFoundByName) {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  EXPECT_EQ(::dlsym(library, "cublasLtMatmul"), reinterpret_cast<void*>(&cublasLtMatmul));
  EXPECT_EQ(cublasLtGetVersion(), CUBLAS_VERSION);
}

TEST(SimCublasLt, IsRightTransposedAndScaled) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Product p = example(ta, tb);
      expect_right(p);
      p.alpha = 0.5F;
      p.beta = -2;
      expect_right(p);
    }
  }
}

TEST(SimCublasLt, IsRightInBatches) {
  Product p = example(true, false);
  p.batch = 3;
  p.a.stride = 16 * kM;
  p.b.stride = 0;  // one B for all
  p.d.stride = 24 * kN;
  p.beta = 1;
  expect_right(p);
  p.d = {kM, kN, 3 * kM, kM};  // side by side, as heads lie
  expect_right(p);
}

TEST(SimCublasLt, IsRightRowMajor) {
  Product p = example(false, true);
  for (Operand* o : {&p.a, &p.b, &p.d}) {
    o->order = CUBLASLT_ORDER_ROW;
    o->ld = 32;
  }
  expect_right(p);
}

TEST(SimCublasLt, IsRightInALongSplitSum) {
  Product p;
  p.a = {5, 800, 5};
  p.b = {800, 5, 800};
  p.d = {5, 5, 5};
  p.workspace = 1 << 20;
  p.workspace_given = 1 << 20;
  expect_right(p);
}

TEST(SimCublasLt, EpiloguesForward) {
  const Data data;
  const DeviceFloats bias(data.bias);
  const DeviceFloats aux(data.aux);
  const auto with_bias = [&](double x, std::size_t i) { return x + double{data.bias[i]}; };
  Product p = example(false, false);
  p.bias = bias.data();
  p.epilogue = CUBLASLT_EPILOGUE_BIAS;
  expect_right(p, with_bias);
  p.epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  expect_right(p, [&](double x, std::size_t i) { return std::max(0.0, with_bias(x, i)); });
  p.epilogue = CUBLASLT_EPILOGUE_GELU;
  expect_right(p, [](double x, std::size_t /*row*/) { return tanh_gelu(x); });
  p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  p.aux = aux.data();
  p.aux_ld = 16;
  expect_right(p, [&](double x, std::size_t i) { return tanh_gelu(with_bias(x, i)); });
  const std::vector<float> kept = aux.values();
  for (std::size_t j = 0; j < kN; ++j) {
    for (std::size_t i = 0; i < kM; ++i) {
      ASSERT_NEAR(kept[i + j * 16], with_bias(element_of(p, data, 0, i, j), i), 1e-5);
    }
  }
}

TEST(SimCublasLt, EpiloguesBackward) {
  const Data data;
  const DeviceFloats a(data.a);
  const DeviceFloats b(data.b);
  const DeviceFloats d(data.c);
  const DeviceFloats bias(data.bias);
  const DeviceFloats aux(data.aux);
  Product p = example(false, false);
  p.bias = bias.data();
  p.aux = aux.data();
  p.aux_ld = 16;
  p.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
  run(p, a.data(), b.data(), nullptr, d.data());
  const std::vector<float> gradient = d.values();
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < kM; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < kN; ++j) {
      const double x = double{data.aux[i + j * 16]};
      const double slope = (tanh_gelu(x + kStep) - tanh_gelu(x - kStep)) / (2 * kStep);
      const double expected = slope * element_of(p, data, 0, i, j);
      ASSERT_NEAR(gradient[p.d.element(0, i, j)], expected, 1e-4);
      sum += expected;
    }
    ASSERT_NEAR(bias.values()[i], sum, 1e-4);
  }
  p.epilogue = CUBLASLT_EPILOGUE_BGRADB;  // sums op(B) over k
  run(p, a.data(), b.data(), nullptr, d.data());
  for (std::size_t j = 0; j < kN; ++j) {
    double sum = 0;
    for (std::size_t l = 0; l < kK; ++l) sum += double{data.b[p.b.element(0, l, j)]};
    ASSERT_NEAR(bias.values()[j], sum, 1e-5);
  }
  p.epilogue = CUBLASLT_EPILOGUE_BGRADA;  // sums op(A) over k
  run(p, a.data(), b.data(), nullptr, d.data());
  for (std::size_t i = 0; i < kM; ++i) {
    double sum = 0;
    for (std::size_t l = 0; l < kK; ++l) sum += double{data.a[p.a.element(0, i, l)]};
    ASSERT_NEAR(bias.values()[i], sum, 1e-5);
  }
}

TEST(SimCublasLt, TakesBf16) {
  const std::vector<std::uint16_t> ones(64, 0x3F80);  // 1 as bf16
  const DeviceFloats a(std::vector<float>(32));
  const DeviceFloats d(std::vector<float>(64));
  succeed(cudaMemcpy(a.data(), ones.data(), 128, cudaMemcpyHostToDevice));
  Product p;
  p.a = p.b = p.d = {8, 8, 8};
  p.input = CUDA_R_16BF;
  p.alignment = 2;
  run(p, a.data(), a.data(), nullptr, d.data());
  EXPECT_EQ(d.values(), std::vector<float>(64, 8));
}

// Memory that nobody gives back, of a process that ends.
float* device_floats(std::size_t n) {
  void* data = nullptr;
  succeed(cudaMalloc(&data, n * sizeof(float)));
  return static_cast<float*>(data);
}

// Runs a changed example in a process of its own, on operands of exactly the example's sizes.
void expect_misuse(const std::function<void(Product&)>& change, const std::string& words,
                   std::size_t shift = 0) {
  expect_failure(
      [&] {
        const DeviceFloats a(std::vector<float>(16 * kK));
        const DeviceFloats b(std::vector<float>(32 * kN));
        const DeviceFloats d(std::vector<float>(24 * kN + 8));
        Product p = example(false, false);
        change(p);
        run(p, a.data(), b.data(), nullptr, d.data() + shift);
      },
      words);
}

TEST(SimCublasLtFinds, WrongShapesAndLayouts) {
  expect_misuse([](Product& p) { p.a.ld = kK; },
                "leading dimension 9 of A is less than its 13 rows");
  expect_misuse([](Product& p) { p.b.ld = 64; },
                "cublasLtMatmul: B: needs [0-9]+ bytes at offset 0 of allocation #[0-9]+, which");
  expect_misuse([](Product& p) { p.ta = true; }, "shapes do not fit: op\\(A\\) \\[9, 13\\]");
  expect_misuse([](Product& p) { p.d.cols = 0; }, "a product with an empty matrix");
  expect_misuse(
      [](Product& p) {
        p.batch = 2;
        p.d.stride = 10;
      },
      "batches of D overlap: stride 10, leading dimension 24");
}

TEST(SimCublasLtFinds, WrongAlgorithmsAndWorkspaces) {
  expect_misuse([](Product& p) { p.alignment = 16; },
                "misaligned: D at .* is not a multiple of 16 bytes", 1);
  expect_misuse([](Product& p) { p.ld_when_run = 15; }, "chosen for another problem");
  expect_misuse(
      [](Product& p) {
        p.a = {1, 144, 1};
        p.b = {144, 1, 144};
        p.d = {1, 1, 1};
        p.workspace = 4096;
        p.workspace_given = 128;
      },
      "workspace too small: got 128 bytes, the algorithm needs 256");
}

TEST(SimCublasLtFinds, WrongEpilogues) {
  expect_misuse([](Product& p) { p.epilogue = CUBLASLT_EPILOGUE_BIAS; }, "without a bias pointer");
  expect_misuse([](Product& p) { p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX; },
                "aux has leading dimension 0");
  expect_misuse(
      [](Product& p) {
        p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
        p.aux_ld = 16;
      },
      "without an aux pointer");
  const auto expect_aux = [](std::int64_t ld, std::size_t floats, std::size_t shift,
                             const std::string& words) {
    const auto change = [&](Product& p) {
      p.epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
      p.aux_ld = ld;
      p.aux = device_floats(floats) + shift;
    };
    expect_misuse(change, words);
  };
  expect_aux(20, 20 * kN, 0, "aux has leading dimension 20 .* multiples of 8");
  expect_aux(8, 16 * kN, 0, "aux has leading dimension 8 .* at least the 13 rows");
  expect_aux(16, 16 * kN, 1, "misaligned: aux at .* is not a multiple of 16 bytes");
  expect_aux(16, 16 * (kN - 1) + kM - 1, 0, "cublasLtMatmul: aux: needs 1396 bytes at offset 0");
  const auto expect_vector = [](std::uint32_t epilogue, std::size_t floats,
                                const std::string& words) {
    const auto change = [&](Product& p) {
      p.epilogue = epilogue;
      p.bias = floats == 0 ? nullptr : device_floats(floats);
    };
    expect_misuse(change, words);
  };
  expect_vector(CUBLASLT_EPILOGUE_BGRADB, 0, "epilogue 512 without a bias pointer");
  expect_vector(CUBLASLT_EPILOGUE_BGRADB, kM, "bias: needs 88 bytes");  // of A's rows, as BGRADA
  expect_vector(CUBLASLT_EPILOGUE_BGRADA, kM - 1, "bias: needs 52 bytes");
  expect_misuse([](Product& p) { p.epilogue = 3; }, "epilogue 3 is not simulated");
}

TEST(SimCublasLtFinds, WrongTypes) {
  expect_misuse([](Product& p) { p.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }, "TF32");
  expect_misuse([](Product& p) { p.input = CUDA_R_64F; }, "are not in cublasLt's table");
  runtime_options().allow_tf32 = true;
  Product p = example(false, false);
  p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  const DeviceFloats a(std::vector<float>(16 * kK, 1 + 0x1p-12F));  // a bit that TF32 has not
  const DeviceFloats b(std::vector<float>(32 * kN, 1));
  const DeviceFloats d(std::vector<float>(24 * kN));
  run(p, a.data(), b.data(), nullptr, d.data());
  EXPECT_EQ(d.values()[0], static_cast<float>(kK));
  runtime_options() = {};
}

TEST(SimCublasLtFinds, WrongMemory) {
  const Product p = example(false, false);
  const DeviceFloats a(std::vector<float>(4096));
  expect_failure([&] { run(p, a.data(), a.data() + 1024, nullptr, a.data()); },
                 "D overlaps A in memory");
  Product gradient = p;
  gradient.epilogue = CUBLASLT_EPILOGUE_BGRADB;
  gradient.bias = a.data() + 1024;
  expect_failure([&] { run(gradient, a.data(), a.data() + 1024, nullptr, a.data() + 2048); },
                 "the bias overlaps B in memory");
  expect_failure([&] { run(p, a.data(), std::vector<float>(4096).data(), nullptr, a.data()); },
                 "cublasLtMatmul: B: .* is not device memory");
  expect_failure(
      [&] {
        void* freed = nullptr;
        succeed(cudaMalloc(&freed, 1 << 16));
        succeed(cudaFree(freed));
        run(p, a.data(), freed, nullptr, a.data() + 2048);
      },
      "cublasLtMatmul: B: use after free of allocation");
  expect_failure(
      [] {
        cublasLtMatrixLayout_t layout = nullptr;
        succeed(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1, 1, 1));
        const std::int64_t batch = 2;  // is an int32
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 8);
      },
      "attribute 5 of a matrix layout: got 8 bytes, expected 4");
}

}  // namespace
}  // namespace sim
