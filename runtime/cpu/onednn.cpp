#include "runtime/cpu/onednn.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/cpu/kernel_trace.h"
#include "runtime/cpu/onednn_compat.h"
#include "runtime/cpu/parallel.h"
#include "runtime/storage.h"

namespace duet {
namespace {

using dnnl::memory;

// oneDNN's GEMM packs its operands into buffers that it takes from malloc and frees at the end of
// every call. By default glibc maps and unmaps such buffers, and each call pays their page faults
// again; told to keep up to a quarter GiB, a warm step takes none.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that every glibc accepts
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    keep_freed_memory();
    num_threads();  // sets OpenMP's count, which oneDNN reads
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

// What makes two products the same primitive: sizes, strides, flags.
struct Key {
  static constexpr std::size_t kLength = 6 * kMaxDims + 2;
  std::array<std::int64_t, kLength> words{};

  Key(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
    std::size_t i = 0;
    words[i++] = c.ndim();
    words[i++] = (options.accumulate ? 1 : 0) + (options.bias != nullptr ? 2 : 0) +
                 4 * static_cast<std::int64_t>(num_threads());
    for (int d = 0; d < c.ndim(); ++d) {
      for (const std::int64_t w :
           {a.shape[d], a.strides[d], b.shape[d], b.strides[d], c.shape[d], c.strides[d]}) {
        words[i++] = w;
      }
    }
  }
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t h = 0;
    for (const std::int64_t w : key.words) {
      h = (h ^ static_cast<std::uint64_t>(w)) * 0x9E3779B97F4A7C15U;
      h ^= h >> 29;
    }
    return h;
  }
};

// A broadcast dimension has size 1 in oneDNN. The stride of a size 1 says nothing, but oneDNN reads
// it: it must not hide that the other of the last two dimensions has stride 1.
memory::desc describe(const ConstView& x) {
  memory::dims sizes(x.shape.begin(), x.shape.end());
  memory::dims strides(x.strides.begin(), x.strides.end());
  const std::size_t row = sizes.size() - 2;
  const std::size_t column = sizes.size() - 1;
  const bool column_major =
      strides[row] == 1 && strides[column] >= sizes[row] && sizes[row] > 1 && sizes[column] > 1;
  if (!column_major && sizes[column] == 1) strides[column] = 1;
  if (!column_major && sizes[row] == 1) strides[row] = sizes[column];
  std::int64_t dense = sizes[row] * sizes[column];
  for (std::size_t d = row; d-- > 0;) {
    if (strides[d] == 0) sizes[d] = 1;
    if (sizes[d] == 1) strides[d] = dense;
    dense = std::max(dense, strides[d] * sizes[d]);
  }
  return {sizes, memory::data_type::f32, strides};
}

struct Primitive {
  dnnl::matmul matmul;
  std::string implementation;
  std::size_t scratchpad_bytes = 0;
  std::unordered_map<int, memory> arguments;

  Primitive(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
    const memory::desc da = describe(a);
    const memory::desc db = describe(b);
    const memory::desc dc = describe(c);
    Shape bias_shape = Dims::filled(c.ndim(), 1);
    bias_shape[c.ndim() - 1] = c.size(-1);
    const memory::desc bias =
        describe({options.bias, DType::f32, bias_shape, contiguous_strides(bias_shape)});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (options.accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attr.set_post_ops(post);
    }
    const auto descriptor = onednn::matmul_descriptor(
        engine(), da, db, options.bias != nullptr ? &bias : nullptr, dc, attr);
    matmul = dnnl::matmul(descriptor);
    implementation = descriptor.impl_info_str();
    scratchpad_bytes = descriptor.scratchpad_desc().get_size();
    arguments.emplace(DNNL_ARG_SRC, memory(da, engine(), nullptr));
    arguments.emplace(DNNL_ARG_WEIGHTS, memory(db, engine(), nullptr));
    arguments.emplace(DNNL_ARG_DST, memory(dc, engine(), nullptr));
    if (options.bias != nullptr) {
      arguments.emplace(DNNL_ARG_BIAS, memory(bias, engine(), nullptr));
    }
    if (scratchpad_bytes > 0) {
      arguments.emplace(DNNL_ARG_SCRATCHPAD,
                        memory(descriptor.scratchpad_desc(), engine(), nullptr));
    }
  }

  void set(int argument, const void* data) {
    // oneDNN's handles are not const, though it only reads the operands.
    arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }
};

// Per thread, because a primitive's arguments are set in place. More shapes than a model has means
// that shapes keep changing: then the oldest choice is to start over.
constexpr std::size_t kMaxPrimitives = 1024;

Primitive& primitive_for(const ConstView& a, const ConstView& b, const View& c,
                         const GemmOptions& options) {
  thread_local std::unordered_map<Key, Primitive, KeyHash> cache;
  const Key key(a, b, c, options);
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  if (cache.size() >= kMaxPrimitives) cache.clear();
  return cache.emplace(key, Primitive(a, b, c, options)).first->second;
}

void execute(Primitive& p, const ConstView& a, const ConstView& b, const View& c,
             const GemmOptions& options) {
  thread_local dnnl::stream stream(engine());
  trace_onednn(p.implementation);
  p.set(DNNL_ARG_SRC, a.data);
  p.set(DNNL_ARG_WEIGHTS, b.data);
  p.set(DNNL_ARG_DST, c.data);
  if (options.bias != nullptr) p.set(DNNL_ARG_BIAS, options.bias);
  std::optional<Storage> scratchpad;
  if (p.scratchpad_bytes > 0) {
    scratchpad.emplace(p.scratchpad_bytes, kCpu);
    p.set(DNNL_ARG_SCRATCHPAD, scratchpad->data());
  }
  p.matmul.execute(stream, p.arguments);
  stream.wait();
}

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

// c = or += a @ b by padded copies. False: nothing done, this product does not suffer.
bool padded_gemm(const ConstView& a, const ConstView& b, const View& c,
                 const GemmOptions& options) {
  const std::int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  if (c.ndim() != 2 || m < 128 || n < 128 || k < 2 * kLeastDepth || !reads_in_place(m, n)) {
    return false;
  }
  const Lines la = lines_along_k(a, -2, -1);
  const Lines lb = lines_along_k(b, -1, -2);
  const std::int64_t line =
      (la.collide ? la.padded_step() : 0) + (lb.collide ? lb.padded_step() : 0);
  if (line == 0 || kPaddedFloats / line < kLeastDepth) return false;
  thread_local const auto buffer = std::make_unique<float[]>(kPaddedFloats);
  const std::int64_t blocks = (k * line + kPaddedFloats - 1) / kPaddedFloats;
  const std::int64_t depth = (k + blocks - 1) / blocks;
  for (std::int64_t begin = 0; begin < k; begin += depth) {
    const std::int64_t count = std::min(depth, k - begin);
    ConstView block_a = a, block_b = b;
    block_a.shape[1] = block_b.shape[0] = count;
    block_a.data = la.data + begin * a.stride(1);
    block_b.data = lb.data + begin * b.stride(0);
    float* free = buffer.get();
    if (la.collide) {
      copy_lines(la, begin, count, free);
      block_a.data = free;
      block_a.strides[1] = la.padded_step();
      free += count * la.padded_step();
    }
    if (lb.collide) {
      copy_lines(lb, begin, count, free);
      block_b.data = free;
      block_b.strides[0] = lb.padded_step();
    }
    const GemmOptions block_options = begin == 0 ? options : GemmOptions{.accumulate = true};
    execute(primitive_for(block_a, block_b, c, block_options), block_a, block_b, c, block_options);
  }
  return true;
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

void gemm(const ConstView& a, const ConstView& b, const View& c, const GemmOptions& options) {
  translate_errors(a, b, [&] {
    Primitive& p = primitive_for(a, b, c, options);
    if (p.implementation == "gemm:jit" && padded_gemm(a, b, c, options)) return;
    execute(p, a, b, c, options);
  });
}

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return concat(v->major, '.', v->minor, '.', v->patch);
}

std::string onednn_implementation(const ConstView& a, const ConstView& b, const View& c,
                                  const GemmOptions& options) {
  return translate_errors(a, b, [&] { return primitive_for(a, b, c, options).implementation; });
}

}  // namespace duet
