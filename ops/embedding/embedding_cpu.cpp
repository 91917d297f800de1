#include <algorithm>
#include <array>
#include <cstring>

#include "ops/embedding/embedding.h"
#include "runtime/cpu/parallel.h"
#include "runtime/memory_ops_kernels.h"
#include "runtime/strided.h"

namespace duet {
namespace {

constexpr std::int64_t kRows = 64;     // of one chunk of forward
constexpr std::int64_t kColumns = 64;  // of one chunk of backward

template <class F>
void visit_ids(ConstView ids, F&& f) {
  if (ids.dtype == DType::i32) {
    f(ids.as<std::int32_t>());
  } else {
    f(ids.as<std::int64_t>());
  }
}

void check_ids(ConstView ids, std::int64_t vocab, const char* what, const std::int64_t* ignored) {
  visit_ids(ids, [&](const auto* data) {
    std::int64_t position = 0;
    for_each_row<1>(ids.shape, {ids.strides}, [&](auto offset, std::int64_t n, auto step) {
      for (std::int64_t i = 0; i < n; ++i, ++position) {
        const std::int64_t id = data[offset[0] + i * step[0]];
        if (id >= 0 && id < vocab) continue;
        check(ignored != nullptr && id == *ignored, ErrorKind::index, what, '[', position, "]=", id,
              " is outside [0, ", vocab, ')');
      }
    });
  });
}

void forward(ConstView weight, ConstView ids, View y) {
  const std::int64_t width = weight.size(1);
  visit_floating(weight.dtype, "embedding", [&]<class T>(TypeTag<T>) {
    visit_ids(ids, [&](const auto* id) {
      parallel_for(ids.size(0), kRows, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          const T* from = weight.as<T>() + static_cast<std::int64_t>(id[n]) * weight.stride(0);
          T* to = y.as<T>() + n * width;
          if (weight.stride(1) == 1) {
            std::memcpy(to, from, static_cast<std::size_t>(width) * sizeof(T));
          } else {
            for (std::int64_t c = 0; c < width; ++c) to[c] = from[c * weight.stride(1)];
          }
        }
      });
    });
  });
}

// Columns [begin, end) of dweight, all ids. order[0..N) lists positions by id, then by position.
template <class T, class Id>
void backward_columns(ConstView dy, const Id* ids, const std::int64_t* order, std::int64_t count,
                      View dweight, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = end - begin;
  for (std::int64_t i = 0; i < count;) {
    const Id id = ids[order[i]];
    std::array<double, kColumns> sum{};
    for (; i < count && ids[order[i]] == id; ++i) {
      const T* g = dy.as<T>() + order[i] * dy.stride(0) + begin * dy.stride(1);
      if (dy.stride(1) == 1) {
        for (std::int64_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += g[c];
      } else {
        for (std::int64_t c = 0; c < width; ++c) {
          sum[static_cast<std::size_t>(c)] += g[c * dy.stride(1)];
        }
      }
    }
    T* out = dweight.as<T>() + static_cast<std::int64_t>(id) * dweight.stride(0) +
             begin * dweight.stride(1);
    for (std::int64_t c = 0; c < width; ++c) {
      T& o = out[c * dweight.stride(1)];
      o = static_cast<T>(static_cast<double>(o) + sum[static_cast<std::size_t>(c)]);
    }
  }
}

void backward(ConstView dy, ConstView ids, View order, View dweight, bool accumulate) {
  if (!accumulate) memory_ops_cpu.fill(dweight, 0.0);
  const std::int64_t count = ids.size(0);
  std::int64_t* positions = order.as<std::int64_t>();
  for (std::int64_t n = 0; n < count; ++n) positions[n] = n;
  visit_ids(ids, [&](const auto* id) {
    std::sort(positions, positions + count, [id](std::int64_t a, std::int64_t b) {
      return id[a] != id[b] ? id[a] < id[b] : a < b;
    });
    visit_floating(dy.dtype, "embedding", [&]<class T>(TypeTag<T>) {
      parallel_for(dweight.size(1), kColumns, [&](std::int64_t begin, std::int64_t end) {
        backward_columns<T>(dy, id, positions, count, dweight, begin, end);
      });
    });
  });
}

}  // namespace

extern const EmbeddingKernels embedding_cpu{check_ids, forward, backward};

}  // namespace duet
