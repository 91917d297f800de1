// The one loop under every elementwise kernel: any number of inputs and outputs of one shape, with
// any strides.
//
//   struct Ratio {                                     // out = a / b
//     using In = float;                                // of all inputs
//     using Out = float;                               // of all outputs
//     static constexpr int kIn = 2, kOut = 1;
//     static constexpr int kPack = 4;                  // elements a thread takes where it can
//     template <int kWidth>                            // kWidth elements side by side
//     DUET_HD void operator()(std::int64_t first, const float (&in)[2][kWidth],
//                             float (&out)[1][kWidth]) const { ... }
//   };
//   cuda::elementwise(Ratio{}, y.shape, {a, b}, {y});
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "runtime/cuda/block.cuh"
#include "runtime/cuda/port.h"
#include "runtime/strided.h"
#include "runtime/view.h"

namespace duet::cuda {

inline constexpr int kElementwiseThreads = 256;

// n / d for n < 2^31 as a product and a shift (Granlund and Montgomery, 1994): a division by a
// number that the compiler does not know costs about 20 instructions.
struct Divider {
  std::uint32_t d = 1, factor = 1, shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t divisor)
      : d(divisor), shift(static_cast<std::uint32_t>(std::bit_width(divisor - 1))) {
    const std::uint64_t excess = (std::uint64_t{1} << shift) - divisor;
    factor = static_cast<std::uint32_t>((excess << 32) / divisor + 1);
  }
  __host__ __device__ std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * factor) >> 32);
    return (high + n) >> shift;
  }
};

// Merged dims, the innermost first. `step` in elements of operand k.
template <int kOperands>
struct StridedDims {
  std::int64_t n = 1;     // elements
  int ndim = 0;           // at least 1
  bool is_small = false;  // n < 2^31: indices are divided as 32-bit numbers
  std::int64_t size[kMaxDims] = {};
  Divider divider[kMaxDims];
  std::int64_t step[kMaxDims][kOperands] = {};

  StridedDims(const Shape& shape, const std::array<Strides, kOperands>& strides) {
    const auto merged = merge_dims<static_cast<std::size_t>(kOperands)>(shape, strides);
    ndim = std::max(1, merged.sizes.ndim());
    n = merged.sizes.numel();
    is_small = n < (std::int64_t{1} << 31);
    size[0] = 1;
    for (int d = 0; d < merged.sizes.ndim(); ++d) {
      const int from = merged.sizes.ndim() - 1 - d;
      size[d] = merged.sizes[from];
      for (std::size_t k = 0; k < static_cast<std::size_t>(kOperands); ++k) {
        step[d][k] = merged.steps[k][from];
      }
    }
    for (int d = 0; is_small && n > 0 && d < ndim; ++d) {
      divider[d] = Divider(static_cast<std::uint32_t>(size[d]));
    }
  }

  // The offset of row-major element `index` in every operand.
  __device__ void locate(std::int64_t index, std::int64_t (&offset)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) offset[k] = 0;
    if (is_small) {
      auto rest = static_cast<std::uint32_t>(index);
      for (int d = 0; d + 1 < ndim; ++d) {
        const std::uint32_t outer = divider[d].quotient(rest);
        advance(d, rest - outer * divider[d].d, offset);
        rest = outer;
      }
      advance(ndim - 1, rest, offset);
    } else {
      for (int d = 0; d + 1 < ndim; ++d) {
        advance(d, index % size[d], offset);
        index /= size[d];
      }
      advance(ndim - 1, index, offset);
    }
  }

 private:
  __device__ void advance(int d, std::int64_t by, std::int64_t (&offset)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) offset[k] += by * step[d][k];
  }
};

// kWidth elements that one instruction or two read or write.
template <class T, int kWidth>
struct alignas(std::min<std::size_t>(16, sizeof(T) * kWidth)) Packed {
  T at[kWidth];
};

template <class Body>
struct Elementwise {
  static constexpr int kOperands = Body::kIn + Body::kOut, kPack = Body::kPack;
  const typename Body::In* in[std::max(1, Body::kIn)];
  typename Body::Out* out[Body::kOut];
  StridedDims<kOperands> dims;

  // May kPack elements be taken at once? They must lie side by side, in an input perhaps all in one
  // place.
  bool packs() const {
    if (dims.size[0] % kPack != 0 && dims.ndim > 1) return false;
    for (int k = 0; k < kOperands; ++k) {
      if (dims.step[0][k] == 0 && k < Body::kIn) continue;
      const bool is_input = k < Body::kIn;
      const auto address = is_input ? reinterpret_cast<std::uintptr_t>(in[k])
                                    : reinterpret_cast<std::uintptr_t>(out[k - Body::kIn]);
      const std::size_t alignment = is_input ? alignof(Packed<typename Body::In, kPack>)
                                             : alignof(Packed<typename Body::Out, kPack>);
      if (dims.step[0][k] != 1 || address % alignment != 0) return false;
      for (int d = 1; d < dims.ndim; ++d) {
        if (dims.step[d][k] % kPack != 0) return false;
      }
    }
    return true;
  }
};

// A thread takes kWidth elements per step: groups that `packs` allows, or one. Only of a single
// merged dim may the last group be cut.
template <int kWidth, class Body>
__global__ void elementwise_kernel(Elementwise<Body> work, Body body) {
  constexpr int kIn = Body::kIn, kOut = Body::kOut;
  using In = typename Body::In;
  using Out = typename Body::Out;
  const std::int64_t n = work.dims.n;
  for (std::int64_t first = global_thread() * kWidth; first < n;
       first += global_threads() * kWidth) {
    std::int64_t offset[kIn + kOut];
    work.dims.locate(first, offset);
    In in[std::max(1, kIn)][kWidth];
    Out out[kOut][kWidth];
    const auto here = static_cast<int>(std::min<std::int64_t>(kWidth, n - first));
    const bool is_whole = kWidth > 1 && here == kWidth;
    for (int k = 0; k < kIn; ++k) {
      const In* p = work.in[k] + offset[k];
      const bool is_shared = kWidth > 1 && work.dims.step[0][k] == 0;
      if (is_whole && !is_shared) {
        const auto packed = *reinterpret_cast<const Packed<In, kWidth>*>(p);
        for (int i = 0; i < kWidth; ++i) in[k][i] = packed.at[i];
      } else {
        for (int i = 0; i < kWidth; ++i) in[k][i] = i < here ? p[is_shared ? 0 : i] : In{};
      }
    }
    body(first, in, out);
    for (int k = 0; k < kOut; ++k) {
      Out* p = work.out[k] + offset[kIn + k];
      if (is_whole) {
        Packed<Out, kWidth> packed;
        for (int i = 0; i < kWidth; ++i) packed.at[i] = out[k][i];
        *reinterpret_cast<Packed<Out, kWidth>*>(p) = packed;
      } else {
        for (int i = 0; i < kWidth; ++i) {
          if (i < here) p[i] = out[k][i];
        }
      }
    }
  }
}

// Runs `body` over every element of `shape`. An input may be an output too, if it is so with the
// same strides.
template <class Body>
void elementwise(const Body& body, const Shape& shape, const std::array<ConstView, Body::kIn>& in,
                 const std::array<View, Body::kOut>& out) {
  if (shape.numel() == 0) return;
  constexpr int kOperands = Body::kIn + Body::kOut;
  std::array<Strides, kOperands> strides;
  std::size_t k = 0;
  for (const ConstView& x : in) strides[k++] = x.strides;
  for (const View& y : out) strides[k++] = y.strides;
  Elementwise<Body> work{{}, {}, StridedDims<kOperands>(shape, strides)};
  k = 0;
  for (const ConstView& x : in) work.in[k++] = x.template as<typename Body::In>();
  k = 0;
  for (const View& y : out) work.out[k++] = y.template as<typename Body::Out>();
  const std::int64_t n = work.dims.n;
  if (Body::kPack > 1 && work.packs()) {
    constexpr int kPack = Body::kPack;
    GPU_LAUNCH((elementwise_kernel<kPack, Body>),
               blocks_for((n + kPack - 1) / kPack, kElementwiseThreads), kElementwiseThreads, 0,
               work, body);
  } else {
    GPU_LAUNCH((elementwise_kernel<1, Body>), blocks_for(n, kElementwiseThreads),
               kElementwiseThreads, 0, work, body);
  }
}

}  // namespace duet::cuda
