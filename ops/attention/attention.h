// Kernels behind attention() of ops/ops.h, and the sizes they share with it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/launch_count.h"
#include "runtime/view.h"

namespace duet {

// q [B, Tq, Hq, D], k [B, Tk, Hkv, D], v [B, Tk, Hkv, Dv] of any strides; first_visible i32
// [B, Tq], or without data: 0 for all.
struct AttentionInputs {
  ConstView q, k, v, first_visible;
  double scale = 1;
  bool causal = true;

  std::int64_t batch() const { return q.size(0); }
  std::int64_t queries() const { return q.size(1); }
  std::int64_t keys() const { return k.size(1); }
  std::int64_t heads() const { return q.size(2); }
  std::int64_t kv_heads() const { return k.size(2); }
  std::int64_t group() const { return heads() / std::max<std::int64_t>(1, kv_heads()); }
  std::int64_t width() const { return q.size(3); }
  std::int64_t value_width() const { return v.size(3); }
  // One unit of work is one key/value head of one sequence: it owns its outputs and gradients, so
  // results do not depend on the thread count.
  std::int64_t units() const { return batch() * kv_heads(); }

  std::uint64_t view_bytes() const {
    return viewed_bytes(q) + viewed_bytes(k) + viewed_bytes(v) + viewed_bytes(first_visible);
  }

  // Query i of sequence b sees the keys [first_key, last_key), none if that is empty.
  std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    if (first_visible.data == nullptr) return 0;
    const std::int64_t at = b * first_visible.stride(0) + i * first_visible.stride(1);
    return std::max<std::int64_t>(0, first_visible.as<std::int32_t>()[at]);
  }
  std::int64_t last_key(std::int64_t i) const {
    if (!causal) return keys();
    return std::clamp<std::int64_t>(i + 1 + keys() - queries(), 0, keys());
  }
};

// Tiles of the f32 kernels, and the largest vector pair they pad to (two of AVX-512).
inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kKeyTile = 64;
inline constexpr std::int64_t kPanel = 32;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// How many threads take part: as many as have units, one where the work is small.
std::int64_t attention_threads(const AttentionInputs& in);

// Elements of scratch that one thread needs: linear in the sequence, never [Tq, Tk].
struct AttentionWorkspace {
  std::int64_t forward = 0, backward = 0;
};
AttentionWorkspace attention_workspace(const AttentionInputs& in);

// Gradients to fill, contiguous; one without data is not wanted.
struct AttentionGrads {
  View dq, dk, dv;

  std::uint64_t view_bytes() const {
    return viewed_bytes(dq) + viewed_bytes(dk) + viewed_bytes(dv);
  }
};

// lse [B, Hq, Tq]: log sum exp of each row of scores. workspace [threads, elements].
struct AttentionKernels {
  void (*forward)(const AttentionInputs& in, View out, View lse, View workspace);
  void (*backward)(const AttentionInputs& in, ConstView out, ConstView lse, ConstView grad_out,
                   const AttentionGrads& grads, View workspace);
};

extern const AttentionKernels attention_cpu;
// Heads up to kCudaWidth wide, B * H * T up to kCudaRows. workspace: none forward; backward
// [B * Hq * Tq], a number per row of scores.
extern const AttentionKernels attention_cuda;
inline constexpr std::int64_t kCudaWidth = 256;
inline constexpr std::int64_t kCudaRows = 1 << 30;

}  // namespace duet
