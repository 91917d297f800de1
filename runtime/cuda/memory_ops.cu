// fill, copy and accumulate on the GPU. What only moves bits is compiled once per size of element.
#include <bit>

#include "runtime/convert.h"
#include "runtime/cuda/elementwise.cuh"
#include "runtime/memory_ops_kernels.h"

namespace duet {
namespace {

// The unsigned integer of kBytes bytes.
template <std::size_t kBytes>
using BitsOf = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

template <class Bits>
struct FillBody {
  using In = Bits;
  using Out = Bits;
  static constexpr int kIn = 0, kOut = 1, kPack = 4;
  Bits value;
  template <int kWidth>
  __device__ void operator()(std::int64_t, const Bits (&)[1][kWidth],
                             Bits (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = value;
  }
};

template <class From, class To>
struct CopyBody {
  using In = From;
  using Out = To;
  // Pairs that no training step copies are compiled for one element at a time alone.
  static constexpr bool is_common =
      std::is_same_v<From, To> || ((std::is_same_v<From, float> || std::is_class_v<From>)&&(
                                      std::is_same_v<To, float> || std::is_class_v<To>));
  static constexpr int kIn = 1, kOut = 1, kPack = is_common ? 4 : 1;
  template <int kWidth>
  __device__ void operator()(std::int64_t, const From (&in)[1][kWidth],
                             To (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = convert<To>(in[0][i]);
  }
};

template <class T>
struct AccumulateBody {
  using In = T;
  using Out = T;
  static constexpr int kIn = 2, kOut = 1, kPack = 4;
  template <int kWidth>
  __device__ void operator()(std::int64_t, const T (&in)[2][kWidth], T (&out)[1][kWidth]) const {
    for (int i = 0; i < kWidth; ++i) out[0][i] = in[1][i] + in[0][i];
  }
};

void fill(View out, double value) {
  visit_any(out.dtype, [&]<class T>(TypeTag<T>) {
    using Bits = BitsOf<sizeof(T)>;
    const FillBody<Bits> body{std::bit_cast<Bits>(convert<T>(value))};
    cuda::elementwise(body, out.shape, {}, {out});
  });
}

void copy(ConstView x, View out) {
  visit_any(x.dtype, [&]<class From>(TypeTag<From>) {
    visit_any(out.dtype, [&]<class To>(TypeTag<To>) {
      if constexpr (std::is_same_v<From, To>) {
        using Bits = BitsOf<sizeof(To)>;
        cuda::elementwise(CopyBody<Bits, Bits>{}, out.shape, {x}, {out});
      } else {
        cuda::elementwise(CopyBody<From, To>{}, out.shape, {x}, {out});
      }
    });
  });
}

void accumulate(ConstView x, View out) {
  visit_floating(out.dtype, "accumulate", [&]<class T>(TypeTag<T>) {
    cuda::elementwise(AccumulateBody<T>{}, out.shape, {x, out}, {out});
  });
}

}  // namespace

extern const MemoryOpsKernels memory_ops_cuda{fill, copy, accumulate};

}  // namespace duet
