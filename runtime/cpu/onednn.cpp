#include "runtime/cpu/onednn.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "runtime/cpu/gemm_needs.h"
#include "runtime/cpu/onednn_primitive.h"
#include "runtime/cpu/parallel.h"

namespace duet {
namespace {

template <class F>
decltype(auto) translate_errors(const ConstView& a, const ConstView& b, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    const bool memory_error = e.status == dnnl_out_of_memory;
    throw Error(memory_error ? ErrorKind::memory : ErrorKind::internal,
                concat("gemm: oneDNN ", onednn_version(), " refused ", a.shape, " x ", b.shape,
                       ": ", e.message));
  }
}

constexpr const char* kGemmJit = "gemm:jit";

// --- A slow spot of "gemm:jit". Where a side of c is short it reads the operands in place instead
// of packing them, and walks along K. In an operand stored as K lines a power of two apart, all
// lines fall into the same few sets of the first-level cache, and the product takes up to twice as
// long (dW of every layer up to 512 wide). A copy with an odd distance between lines costs a few
// percent; it is made block by block of K, and so stays in the cache.

constexpr std::int64_t kPaddedFloats = 5 << 18;  // of the copies: 5 MB
constexpr std::int64_t kLeastDepth = 64;         // of a block of K, below which copies do not pay

// oneDNN's own rule for reading in place.
bool reads_in_place(std::int64_t m, std::int64_t n) {
  return 1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) >= 0.0038;
}

// A matrix stored as `depth` lines of `width`, `step` apart.
struct Lines {
  const float* data;
  std::int64_t width, step;
  bool collide;

  std::int64_t padded_step() const {
    const std::int64_t step_by_16 = (width + 31) / 16 * 16;
    return step_by_16 % 128 == 0 ? step_by_16 + 16 : step_by_16;
  }
};

Lines lines_along_k(const ConstView& x, int width_dim, int depth_dim) {
  const std::int64_t step = x.stride(depth_dim);
  return {x.as<float>(), x.size(width_dim), step,
          x.stride(width_dim) == 1 && step >= x.size(width_dim) && step % 128 == 0};
}

void copy_lines(const Lines& x, std::int64_t begin, std::int64_t count, float* out) {
  parallel_for(count, 32, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      std::memcpy(out + i * x.padded_step(), x.data + (begin + i) * x.step,
                  static_cast<std::size_t>(x.width) * sizeof(float));
    }
  });
}

// A product whose colliding operands are copied, block by block of K.
struct PaddedProduct {
  ConstView a, b;
  Lines la, lb;
  std::int64_t depth = 0;  // of a block

  // Nothing where this product does not suffer.
  static std::optional<PaddedProduct> of(const ConstView& a, const ConstView& b, const View& c) {
    const std::int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
    if (c.ndim() != 2 || m < 128 || n < 128 || k < 2 * kLeastDepth || !reads_in_place(m, n)) {
      return std::nullopt;
    }
    PaddedProduct p{a, b, lines_along_k(a, -2, -1), lines_along_k(b, -1, -2)};
    const std::int64_t line =
        (p.la.collide ? p.la.padded_step() : 0) + (p.lb.collide ? p.lb.padded_step() : 0);
    if (line == 0 || kPaddedFloats / line < kLeastDepth) return std::nullopt;
    const std::int64_t blocks = (k * line + kPaddedFloats - 1) / kPaddedFloats;
    p.depth = (k + blocks - 1) / blocks;
    return p;
  }

  // Calls f(a, b, accumulate) for every block. An operand that collides is first copied to
  // `buffer`. Without a buffer nothing is read: f gets sizes and strides of the product to come.
  template <class F>
  void for_blocks(float* buffer, bool accumulate, F&& f) const {
    const std::int64_t k = a.size(-1);
    for (std::int64_t begin = 0; begin < k; begin += depth) {
      const std::int64_t count = std::min(depth, k - begin);
      ConstView block_a = a, block_b = b;
      block_a.shape[1] = block_b.shape[0] = count;
      block_a.data = la.data + begin * a.stride(1);
      block_b.data = lb.data + begin * b.stride(0);
      float* free = buffer;
      if (la.collide) {
        block_a.strides[1] = la.padded_step();
        if (buffer != nullptr) copy_lines(la, begin, count, free);
        block_a.data = free;
        if (buffer != nullptr) free += count * la.padded_step();
      }
      if (lb.collide) {
        block_b.strides[0] = lb.padded_step();
        if (buffer != nullptr) copy_lines(lb, begin, count, free);
        block_b.data = free;
      }
      f(block_a, block_b, accumulate || begin > 0);
    }
  }
};

// "gemm:jit" shares its few kernels among all products; the others generate some for each, most of
// which stay small.
constexpr std::size_t kCodeOfProduct = std::size_t{256} << 10;
constexpr std::size_t kCodeRoomOfProduct = std::size_t{8} << 20;

void count_needs(const GemmPrimitive& product, const ConstView& a, const View& c, bool padded) {
  const bool shared_code = product.implementation() == kGemmJit;
  detail::count_gemm_needs(
      {&product, static_cast<std::size_t>(c.size(-2)), static_cast<std::size_t>(c.size(-1)),
       static_cast<std::size_t>(a.size(-1)), shared_code && !reads_in_place(c.size(-2), c.size(-1)),
       padded ? kPaddedFloats * sizeof(float) : 0, shared_code ? 0 : kCodeOfProduct,
       shared_code ? 0 : kCodeRoomOfProduct});
}

// Only the first block starts c, and brings the bias.
GemmOptions block_options(const GemmOptions& whole, bool accumulate) {
  return {accumulate, accumulate ? nullptr : whole.bias, whole.scratch};
}

}  // namespace

bool is_gemm_operand(const ConstView& x) {
  const std::int64_t rows = x.size(-2);
  const std::int64_t columns = x.size(-1);
  const std::int64_t row_stride = x.stride(-2);
  const std::int64_t column_stride = x.stride(-1);
  const bool row_major =
      (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  const bool column_major =
      (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
  return row_major || column_major;
}

std::size_t gemm_scratch_bytes(const ConstView& a, const ConstView& b, const View& c,
                               const GemmOptions& options) {
  return translate_errors(a, b, [&] {
    const GemmPrimitive& whole = gemm_primitive(a, b, c, options);
    std::size_t bytes = whole.scratch_bytes();
    const std::optional<PaddedProduct> padded =
        whole.implementation() == kGemmJit ? PaddedProduct::of(a, b, c) : std::nullopt;
    count_needs(whole, a, c, padded.has_value());
    if (!padded) return bytes;
    bytes = 0;
    padded->for_blocks(nullptr, options.accumulate, [&](const auto& x, const auto& y, bool add) {
      bytes = std::max(bytes, gemm_primitive(x, y, c, block_options(options, add)).scratch_bytes());
    });
    return bytes;
  });
}

void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
  translate_errors(a, b, [&] {
    GemmPrimitive& whole = gemm_primitive(a, b, c, options);
    const std::optional<PaddedProduct> padded =
        whole.implementation() == kGemmJit ? PaddedProduct::of(a, b, c) : std::nullopt;
    if (!padded) return whole.execute(a, b, c, options);
    thread_local const auto buffer = std::make_unique<float[]>(kPaddedFloats);
    padded->for_blocks(buffer.get(), options.accumulate,
                       [&](const auto& x, const auto& y, bool add) {
                         const GemmOptions block = block_options(options, add);
                         gemm_primitive(x, y, c, block).execute(x, y, c, block);
                       });
  });
}

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return concat(v->major, '.', v->minor, '.', v->patch);
}

std::string onednn_implementation(const ConstView& a, const ConstView& b, const View& c,
                                  const GemmOptions& options) {
  return translate_errors(a, b, [&] { return gemm_primitive(a, b, c, options).implementation(); });
}

}  // namespace duet
