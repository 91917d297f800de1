#include "runtime/cpu/onednn_primitive.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "runtime/cpu/instruction_set.h"
#include "runtime/cpu/kernel_trace.h"
#include "runtime/cpu/memory_limits.h"
#include "runtime/cpu/parallel.h"

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
    cap_instruction_set();
    keep_freed_memory();
    num_threads();  // sets OpenMP's count, which oneDNN reads
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

// Two products share a primitive if their sizes, strides, flags and thread counts are equal.
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

// oneDNN writes through a null pointer where it gets no memory, for a product's description as for
// its code, so the address space that it may take is asked for first.
constexpr std::size_t kDescriptionRoom = std::size_t{512} << 10;

// The "brg" kernels of one product are up to 32, of 256 KiB each, and their copy routines;
// "gemm:jit" makes a few when it first runs.
std::size_t code_room(const std::string& implementation) {
  return std::size_t{implementation.starts_with("gemm") ? 4U : 12U} << 20;
}

void check_room(std::size_t bytes, const char* what) {
  void* const room =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    const MemoryLimit limit = tightest_memory_limit();
    throw Error(ErrorKind::memory,
                concat("gemm: no memory for ", what, ": got ", limit.free >> 10,
                       " KiB free of the ", limit.name, ", expected ", bytes >> 10,
                       " KiB; raise the limit, or make the batch or the model smaller"));
  }
  ::munmap(room, bytes);
}

// Tests give every product at least this many bytes of scratch, so that plans are proved on
// machines whose oneDNN takes none.
std::size_t forced_scratch_bytes() {
  static const std::size_t bytes = [] {
    const char* const text = std::getenv("DUET_GEMM_SCRATCH");
    return text == nullptr ? 0 : static_cast<std::size_t>(std::max(0LL, std::atoll(text)));
  }();
  return bytes;
}

// More shapes than a model has means that shapes keep changing: then the oldest choice is to start
// over.
constexpr std::size_t kMaxPrimitives = 1024;

}  // namespace

GemmPrimitive::GemmPrimitive(const ConstView& a, const ConstView& b, const View& c,
                             const GemmOptions& options) {
  check_room(kDescriptionRoom, "oneDNN's description of a product");
  const dnnl::engine& cpu = engine();
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
  descriptor_ =
      onednn::matmul_descriptor(cpu, da, db, options.bias != nullptr ? &bias : nullptr, dc, attr);
  implementation_ = descriptor_.impl_info_str();
  const std::size_t wanted = descriptor_.scratchpad_desc().get_size();
  scratch_bytes_ = std::max(wanted, forced_scratch_bytes());
  arguments_.emplace(DNNL_ARG_SRC, memory(da, cpu, nullptr));
  arguments_.emplace(DNNL_ARG_WEIGHTS, memory(db, cpu, nullptr));
  arguments_.emplace(DNNL_ARG_DST, memory(dc, cpu, nullptr));
  if (options.bias != nullptr) arguments_.emplace(DNNL_ARG_BIAS, memory(bias, cpu, nullptr));
  if (wanted > 0) {
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, memory(descriptor_.scratchpad_desc(), cpu, nullptr));
  }
}

void GemmPrimitive::generate() {
  check_room(code_room(implementation_), "the code that oneDNN generates");
  matmul_.emplace(descriptor_);
}

void GemmPrimitive::set(int argument, const void* data) {
  // oneDNN's handles are not const, though it only reads the operands.
  arguments_.at(argument).set_data_handle(const_cast<void*>(data));
}

void GemmPrimitive::execute(const ConstView& a, const ConstView& b, const View& c,
                            const GemmOptions& options) {
  check(options.scratch.size() >= scratch_bytes_, ErrorKind::internal,
        "gemm: too little scratch: got ", options.scratch.size(), " bytes, expected ",
        scratch_bytes_, "; take gemm_scratch_bytes() of them");
  if (!matmul_) generate();
  thread_local dnnl::stream stream(engine());
  trace_onednn(implementation_);
  set(DNNL_ARG_SRC, a.data);
  set(DNNL_ARG_WEIGHTS, b.data);
  set(DNNL_ARG_DST, c.data);
  if (options.bias != nullptr) set(DNNL_ARG_BIAS, options.bias);
  // Forced scratch is written as the library's would be: memory that is not ours would show.
  if (forced_scratch_bytes() > 0) std::memset(options.scratch.data(), 0xFF, scratch_bytes_);
  if (arguments_.contains(DNNL_ARG_SCRATCHPAD)) set(DNNL_ARG_SCRATCHPAD, options.scratch.data());
  matmul_->execute(stream, arguments_);
  stream.wait();
}

GemmPrimitive& gemm_primitive(const ConstView& a, const ConstView& b, const View& c,
                              const GemmOptions& options) {
  // Per thread, because a primitive's arguments are set in place.
  thread_local std::unordered_map<Key, GemmPrimitive, KeyHash> cache;
  const Key key(a, b, c, options);
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  if (cache.size() >= kMaxPrimitives) cache.clear();
  return cache.emplace(key, GemmPrimitive(a, b, c, options)).first->second;
}

}  // namespace duet
