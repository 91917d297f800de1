// CUDA kernels of embedding. Forward gathers rows, a warp for each. Backward sorts (id, n) and sums
// the rows of equal ids in the order of n, in parts of fixed size: the same bits in every run.
#include <algorithm>
#include <bit>
#include <limits>

#include "ops/embedding/embedding.h"
#include "runtime/cuda/block.cuh"
#include "runtime/cuda/error_flag.h"

namespace duet {
namespace {

using cuda::BadIndex;
using cuda::blocks_for;
using cuda::kWarp;

constexpr int kThreads = 128;
constexpr int kCheckThreads = 1024;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

template <class F>
void visit_ids(ConstView ids, F&& f) {
  if (ids.dtype == DType::i32) {
    f(ids.as<std::int32_t>());
  } else {
    f(ids.as<std::int64_t>());
  }
}

// --- check_ids

struct Min {
  __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a < b ? a : b; }
};

__device__ std::int64_t offset_of(const ConstView& view, std::int64_t position) {
  std::int64_t offset = 0;
  for (int d = view.ndim() - 1; d >= 0; --d) {
    offset += position % view.size(d) * view.stride(d);
    position /= view.size(d);
  }
  return offset;
}

// One block: which bad id is the first does not depend on who comes first.
template <class Id>
__global__ void check_ids_kernel(ConstView ids, bool dense, std::int64_t count, std::int64_t vocab,
                                 bool ignores, std::int64_t ignored, std::int64_t source,
                                 BadIndex* note) {
  const Id* data = ids.as<Id>();
  std::int64_t first = kNone;
  for (std::int64_t p = threadIdx.x; p < count; p += kCheckThreads) {
    const std::int64_t id = data[dense ? p : offset_of(ids, p)];
    const bool ok = (id >= 0 && id < vocab) || (ignores && id == ignored);
    if (!ok && p < first) first = p;
  }
  first = cuda::block_reduce<Min, kCheckThreads>(first);
  if (threadIdx.x != 0 || first == kNone || note->source != 0) return;
  *note = {source, first, static_cast<std::int64_t>(data[dense ? first : offset_of(ids, first)]),
           vocab};
}

bool is_dense(ConstView x) {
  std::int64_t expected = 1;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    if (x.size(d) != 1 && x.stride(d) != expected) return false;
    expected *= x.size(d);
  }
  return true;
}

void check_ids(ConstView ids, std::int64_t vocab, const char* what, const std::int64_t* ignored) {
  const std::int64_t count = ids.numel();
  if (count == 0) return;
  visit_ids(ids, [&]<class Id>(const Id*) {
    GPU_LAUNCH(check_ids_kernel<Id>, 1, kCheckThreads, 0, ids, is_dense(ids), count, vocab,
               ignored != nullptr, ignored != nullptr ? *ignored : 0, cuda::index_source(what),
               cuda::bad_index());
  });
}

// --- forward

// One warp per row; sizes and strides count Vectors. An id outside the table, which check_ids has
// noted, gives a row of zeros.
template <class Vector, class Id>
__global__ void gather_rows_kernel(const Vector* weight, std::int64_t row_stride,
                                   std::int64_t vocab, const Id* ids, std::int64_t count,
                                   std::int64_t width, Vector* y) {
  for (std::int64_t n = cuda::global_thread() / kWarp; n < count;
       n += cuda::global_threads() / kWarp) {
    const std::int64_t id = ids[n];
    const bool known = id >= 0 && id < vocab;
    const Vector* from = weight + (known ? id : 0) * row_stride;
    for (std::int64_t c = cuda::lane(); c < width; c += kWarp) {
      y[n * width + c] = known ? from[c] : Vector{};
    }
  }
}

// The same for columns that do not lie side by side.
template <class Id>
__global__ void gather_strided_kernel(ConstView weight, const Id* ids, std::int64_t count,
                                      float* y) {
  const std::int64_t width = weight.size(1);
  for (std::int64_t n = cuda::global_thread() / kWarp; n < count;
       n += cuda::global_threads() / kWarp) {
    const std::int64_t id = ids[n];
    const bool known = id >= 0 && id < weight.size(0);
    const float* from = weight.as<float>() + (known ? id : 0) * weight.stride(0);
    for (std::int64_t c = cuda::lane(); c < width; c += kWarp) {
      y[n * width + c] = known ? from[c * weight.stride(1)] : 0.0F;
    }
  }
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

void forward(ConstView weight, ConstView ids, View y) {
  const std::int64_t count = ids.size(0), width = weight.size(1), stride = weight.stride(0);
  if (count == 0 || width == 0) return;
  const bool wide = width % 4 == 0 && stride % 4 == 0 && aligned(weight.data) && aligned(y.data);
  const unsigned blocks = blocks_for(count, kThreads / kWarp);
  visit_ids(ids, [&]<class Id>(const Id* id) {
    if (weight.stride(1) != 1) {
      GPU_LAUNCH(gather_strided_kernel<Id>, blocks, kThreads, 0, weight, id, count, y.as<float>());
    } else if (wide) {
      GPU_LAUNCH((gather_rows_kernel<float4, Id>), blocks, kThreads, 0, weight.as<float4>(),
                 stride / 4, weight.size(0), id, count, width / 4, y.as<float4>());
    } else {
      GPU_LAUNCH((gather_rows_kernel<float, Id>), blocks, kThreads, 0, weight.as<float>(), stride,
                 weight.size(0), id, count, width, y.as<float>());
    }
  });
}

// --- backward: the sort. A key is id << bits | n, so that no two are equal, and keys in order are
// ids in order with their n in order. The network is bitonic, with every comparison upwards: keys
// beyond `count`, which count as largest, never move and need not exist.

constexpr int kMostKeys = 2048;  // sorted by one block in shared memory
constexpr int kLeastKeys = 2 * kWarp;
constexpr int kStepThreads = 256;

__device__ void order_pair(std::int64_t* keys, std::int64_t a, std::int64_t b) {
  const std::int64_t first = keys[a], second = keys[b];
  if (first <= second) return;
  keys[a] = second;
  keys[b] = first;
}

struct Pair {
  std::int64_t a, b;
};
// Pair number p of a step over runs of 2 * half keys: mirrored, or half apart. half = 2^k.
__device__ Pair pair_of(std::int64_t p, std::int64_t half, bool mirrored) {
  const std::int64_t at = p & (half - 1), begin = 2 * (p - at);
  return {begin + at, mirrored ? begin + 2 * half - 1 - at : begin + half + at};
}

// Each block sorts its `tile` keys; 2 for each thread. With Id = void the tiles are already such
// that the steps of half a tile and below are all that is missing.
template <class Id>
__global__ void sort_tiles_kernel(const Id* ids, std::int64_t vocab, int bits, std::int64_t count,
                                  int tile, std::int64_t* keys) {
  GPU_SHARED(std::int64_t, sorted, [kMostKeys]);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * tile;
  for (int i = static_cast<int>(threadIdx.x); i < tile; i += static_cast<int>(blockDim.x)) {
    const std::int64_t n = begin + i;
    sorted[i] = kNone;
    if (n >= count) continue;
    if constexpr (std::is_void_v<Id>) {
      sorted[i] = keys[n];
    } else {
      const std::int64_t id = ids[n];
      sorted[i] = (id >= 0 && id < vocab ? id : vocab) << bits | n;
    }
  }
  __syncthreads();
  const auto step = [&](int half, bool mirrored) {
    const Pair pair = pair_of(threadIdx.x, half, mirrored);
    order_pair(sorted, pair.a, pair.b);
    __syncthreads();
  };
  if constexpr (!std::is_void_v<Id>) {
    for (int half = 1; half < tile; half *= 2) {
      step(half, true);
      for (int below = half / 2; below > 0; below /= 2) step(below, false);
    }
  } else {
    for (int half = tile / 2; half > 0; half /= 2) step(half, false);
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile; i += static_cast<int>(blockDim.x)) {
    if (begin + i < count) keys[begin + i] = sorted[i];
  }
}

// One step over all keys, where a run is longer than a tile.
__global__ void sort_step_kernel(std::int64_t* keys, std::int64_t count, std::int64_t half,
                                 bool mirrored) {
  const Pair pair = pair_of(cuda::global_thread(), half, mirrored);
  if (pair.b < count) order_pair(keys, pair.a, pair.b);
}

template <class Id>
void sort_keys(const Id* ids, std::int64_t vocab, int bits, std::int64_t count,
               std::int64_t* keys) {
  const auto needed = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
  const int tile = static_cast<int>(std::clamp<std::int64_t>(needed, kLeastKeys, kMostKeys));
  const unsigned tiles = static_cast<unsigned>((count + tile - 1) / tile);
  GPU_LAUNCH(sort_tiles_kernel<Id>, tiles, tile / 2, 0, ids, vocab, bits, count, tile, keys);
  const auto step = [&](std::int64_t half, bool mirrored) {
    const std::int64_t pairs = (count + 2 * half - 1) / (2 * half) * half;
    GPU_LAUNCH(sort_step_kernel, static_cast<unsigned>(pairs / kStepThreads), kStepThreads, 0, keys,
               count, half, mirrored);
  };
  for (std::int64_t half = tile; half < count; half *= 2) {
    step(half, true);
    for (std::int64_t below = half / 2; below >= tile; below /= 2) step(below, false);
    GPU_LAUNCH(sort_tiles_kernel<void>, tiles, tile / 2, 0, static_cast<const void*>(nullptr),
               vocab, bits, count, tile, keys);
  }
}

// --- backward: the sums. The sorted keys are cut into parts of kEmbeddingPart. An id whose keys
// all lie in one part is added to dweight at once. Of an id that crosses parts, each part leaves
// its share in `shares` [parts, 2, C], as [0] where the id began in an earlier part, else as [1].

struct Keys {
  const std::int64_t* keys;
  std::int64_t count;
  int bits;

  __device__ std::int64_t id(std::int64_t i) const { return keys[i] >> bits; }
};
struct Rows {
  float* data;
  std::int64_t vocab, stride, column_stride;

  // Adds to a column of the row of id; ids outside the table were sorted behind it.
  __device__ void add(std::int64_t id, std::int64_t c, double sum) const {
    if (id >= vocab) return;
    float& out = data[id * stride + c * column_stride];
    out = static_cast<float>(static_cast<double>(out) + sum);
  }
};

// Block (part, 128 columns), a thread for each column.
__global__ void sum_part_kernel(ConstView dy, Keys all, double* shares, Rows dweight) {
  constexpr int kAhead = 8;  // rows on their way at a time
  constexpr int kPart = static_cast<int>(kEmbeddingPart);
  GPU_SHARED(std::int64_t, around, [kPart + 2]);  // keys of the part and of both neighbours
  const std::int64_t width = dy.size(1), part = blockIdx.x, begin = part * kPart;
  for (int i = static_cast<int>(threadIdx.x); i < kPart + 2; i += kThreads) {
    const std::int64_t at = begin + i - 1;
    around[i] = at < 0 ? -1 : at < all.count ? all.keys[at] : kNone;
  }
  __syncthreads();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= width) return;
  const int size =
      static_cast<int>(all.count - begin < kPart ? all.count - begin : std::int64_t{kPart});
  const std::int64_t mask = (std::int64_t{1} << all.bits) - 1;
  const auto id_at = [&](int i) { return around[i + 1] >> all.bits; };
  const float* column = dy.as<float>() + c * dy.stride(1);
  bool began_before = id_at(-1) == id_at(0);
  double sum = 0;
  for (int first = 0; first < size; first += kAhead) {
    float g[kAhead];
    for (int u = 0; u < kAhead; ++u) {
      g[u] = first + u < size ? column[(around[first + u + 1] & mask) * dy.stride(0)] : 0.0F;
    }
    for (int u = 0; u < kAhead; ++u) {
      const int i = first + u;
      if (i >= size) break;
      sum += static_cast<double>(g[u]);
      const bool ends = id_at(i + 1) != id_at(i);
      if (!ends && i + 1 < size) continue;
      if (ends && !began_before) {
        dweight.add(id_at(i), c, sum);
      } else {
        shares[(2 * part + (began_before ? 0 : 1)) * width + c] = sum;
      }
      began_before = false;
      sum = 0;
    }
  }
}

constexpr int kSlices = 8;

// Block (part, 32 columns): the id, if any, that begins in this part and goes on beyond it. Its
// shares are summed in kSlices interleaved slices, then over the slices.
__global__ void sum_shares_kernel(Keys all, const double* shares, std::int64_t width,
                                  Rows dweight) {
  GPU_SHARED(double, slices, [kSlices][kWarp]);
  const std::int64_t part = blockIdx.x, begin = part * kEmbeddingPart;
  const std::int64_t next = begin + kEmbeddingPart;
  if (next >= all.count) return;
  const std::int64_t id = all.id(next - 1);
  if (all.id(next) != id || (begin > 0 && all.id(begin - 1) == id)) return;
  std::int64_t low = next, high = all.count;  // the id's first key beyond is in [low, high]
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (all.id(middle) == id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const std::int64_t last = (low - 1) / kEmbeddingPart;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kWarp + cuda::lane();
  const int slice = cuda::warp();
  double sum = 0;
  if (c < width) {
    for (std::int64_t q = part + 1 + slice; q <= last; q += kSlices)
      sum += shares[2 * q * width + c];
  }
  slices[slice][cuda::lane()] = sum;
  __syncthreads();
  if (slice > 0 || c >= width) return;
  sum = shares[(2 * part + 1) * width + c];
  for (int s = 0; s < kSlices; ++s) sum += slices[s][cuda::lane()];
  dweight.add(id, c, sum);
}

__global__ void zero_rows_kernel(View out) {
  const std::int64_t width = out.size(1);
  for (std::int64_t r = cuda::global_thread() / kWarp; r < out.size(0);
       r += cuda::global_threads() / kWarp) {
    for (std::int64_t c = cuda::lane(); c < width; c += kWarp) {
      out.as<float>()[r * out.stride(0) + c * out.stride(1)] = 0;
    }
  }
}

void backward(ConstView dy, ConstView ids, View scratch, View dweight, bool accumulate) {
  const std::int64_t count = ids.size(0), vocab = dweight.size(0), width = dweight.size(1);
  if (dweight.numel() == 0) return;
  if (!accumulate) {
    GPU_LAUNCH(zero_rows_kernel, blocks_for(vocab, kThreads / kWarp), kThreads, 0, dweight);
  }
  if (count == 0) return;
  std::int64_t* keys = scratch.as<std::int64_t>();
  auto* shares = reinterpret_cast<double*>(keys + count);
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
  visit_ids(ids, [&](const auto* id) { sort_keys(id, vocab, bits, count, keys); });
  const Keys all{keys, count, bits};
  const Rows rows{dweight.as<float>(), vocab, dweight.stride(0), dweight.stride(1)};
  const auto parts = static_cast<unsigned>((count + kEmbeddingPart - 1) / kEmbeddingPart);
  const auto columns = [&](int each) { return static_cast<unsigned>((width + each - 1) / each); };
  GPU_LAUNCH(sum_part_kernel, dim3(parts, columns(kThreads)), kThreads, 0, dy, all, shares, rows);
  if (parts == 1) return;
  GPU_LAUNCH(sum_shares_kernel, dim3(parts, columns(kWarp)), kSlices * kWarp, 0, all, shares, width,
             rows);
}

}  // namespace

extern const EmbeddingKernels embedding_cuda{check_ids, forward, backward};

}  // namespace duet
