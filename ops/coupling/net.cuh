// The nets of the couplings on a fragment: outputs W2_o silu(W1 x), and the way back through them.
// A warp does it alone: hidden units are sums over the lanes of a token, eight units at a time.
#pragma once

#include "ops/coupling/fragment.cuh"

namespace duet::coupling {

inline constexpr int kUnits = 8;

// Matrices [hidden, width], rows of `stride` elements, padded with zeros: w1, then one w2
// transposed for each output. In shared memory, or in global memory where that is too small.
struct Net {
  const float* w1;
  std::int64_t matrix;  // elements of a matrix
  int stride;
  int hidden;  // before padding
  __device__ const float* w2(int output) const { return w1 + (1 + output) * matrix; }
};

// Where hidden units pass from the lanes that computed them to those that need them: [tokens,
// units], rows of `stride` elements.
struct UnitTile {
  float* data;
  int stride;
  __device__ float* row(int token) const { return data + token * stride; }
};

// Packs w [rows, columns], or its transpose, as [.., stride] padded with zeros to padded_rows.
// Called by a whole block.
__device__ inline void pack(const float* w, int rows, int columns, bool transposed, int padded_rows,
                            int stride, float* to) {
  const int row_count = transposed ? columns : rows, column_count = transposed ? rows : columns;
  for (int e = static_cast<int>(threadIdx.x); e < padded_rows * stride; e += kThreads) {
    // Neighbouring threads read neighbours.
    const int i = transposed ? e % padded_rows : e / stride;
    const int j = transposed ? e / padded_rows : e % stride;
    const bool inside = i < row_count && j < column_count;
    to[i * stride + j] = inside ? (transposed ? w[j * columns + i] : w[i * columns + j]) : 0.0F;
  }
}

__device__ inline float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// Sums values over the kLanes lanes of a token; lane l keeps the sums of n / kLanes of them, from
// value l n / kLanes on, in front.
template <int kLanes, int kCount, int kSize>
__device__ __forceinline__ void scatter_sum(float (&values)[kSize]) {
  if constexpr (kLanes > 1) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & (kLanes / 2)) != 0;
    for (int i = 0; i < kHalf; ++i) {
      const float sent = upper ? values[i] : values[i + kHalf];
      const float kept = upper ? values[i + kHalf] : values[i];
      values[i] = kept + __shfl_xor_sync(cuda::kFullMask, sent, kLanes / 2);
    }
    scatter_sum<kLanes / 2, kHalf>(values);
  }
}

template <int kWidth>
struct NetMath {
  using F = Fragment<kWidth>;
  static constexpr int kValues = F::kRows * kUnits;
  static constexpr int kOwned = kValues / F::kLanes;  // units of one token
  static_assert(kOwned >= 1 && kUnits % kOwned == 0);

  __device__ static int owned_token() { return F::row() + F::lane() * kOwned / kUnits; }
  __device__ static int owned_unit() { return F::lane() * kOwned % kUnits; }

  // sums[token, unit] += this lane's columns of x W^T; rows [unit, columns] of W at `w`.
  __device__ static __forceinline__ void project(const F& x, const float* w, int stride,
                                                 float (&sums)[kValues]) {
    for (int j = 0; j < kUnits; ++j) {
      const float4 v = load4(w + j * stride + F::column());
      for (int r = 0; r < F::kRows; ++r) {
        float& sum = sums[r * kUnits + j];
        sum += x.at[r][0] * v.x + x.at[r][1] * v.y + x.at[r][2] * v.z + x.at[r][3] * v.w;
      }
    }
  }
  // y += factor units W, the units [token, unit] of this lane's tokens.
  __device__ static __forceinline__ void spread(const UnitTile& units, int first, const float* w,
                                                int stride, float factor, F& y) {
    for (int half = 0; half < kUnits; half += 4) {
      float4 a[F::kRows];
      for (int r = 0; r < F::kRows; ++r) a[r] = load4(units.row(F::row() + r) + first + half);
      for (int j = 0; j < 4; ++j) {
        const float4 v = load4(w + (half + j) * stride + F::column());
        for (int r = 0; r < F::kRows; ++r) {
          const float a_j = j == 0 ? a[r].x : j == 1 ? a[r].y : j == 2 ? a[r].z : a[r].w;
          const float unit = factor * a_j;
          y.at[r][0] += unit * v.x;
          y.at[r][1] += unit * v.y;
          y.at[r][2] += unit * v.z;
          y.at[r][3] += unit * v.w;
        }
      }
    }
  }

  // y_o += factor W2_o silu(W1 x). The units pass through columns [0, 8) of `units`.
  template <int kOutputs>
  __device__ static __forceinline__ void evaluate(const Net& net, const F& x, float factor,
                                                  const UnitTile& units, F (&y)[kOutputs]) {
    for (int first = 0; first < net.hidden; first += kUnits) {
      float h[kValues] = {};
      project(x, net.w1 + first * net.stride, net.stride, h);
      scatter_sum<F::kLanes, kValues>(h);
      __syncwarp();  // the units before these have been read
      for (int i = 0; i < kOwned; ++i) {
        const int unit = owned_unit() + i;
        const float a = first + unit < net.hidden ? factor * h[i] * sigmoid(h[i]) : 0.0F;
        units.row(owned_token())[unit] = a;
      }
      __syncwarp();
      spread(units, 0, net.w2(0) + first * net.stride, net.stride, 1.0F, y[0]);
      if constexpr (kOutputs == 2) {
        spread(units, 0, net.w2(1) + first * net.stride, net.stride, 1.0F, y[1]);
      }
    }
  }

  // From the gradients gy_o at the outputs W2_o a, a = silu(h), h = W1 x; g = (sum of W2_o^T gy_o)
  // silu'(h):
  //   gx += factor W1^T g      y += y_sign factor W2_0 a, unless y_sign is 0
  // Leaves factor g and factor a in two tiles, for the gradients of the weights. Returns this
  // thread's part of <sum of W2_o^T gy_o, a>.
  template <int kOutputs>
  __device__ static __forceinline__ float backward(const Net& net, const F& x,
                                                   const F (&gy)[kOutputs], float factor, int count,
                                                   const UnitTile& g, const UnitTile& a, F& gx,
                                                   float y_sign, F& y) {
    float dot = 0;
    for (int first = 0; first < net.hidden; first += kUnits) {
      float h[kValues] = {};
      project(x, net.w1 + first * net.stride, net.stride, h);
      scatter_sum<F::kLanes, kValues>(h);
      float ga[kValues] = {};
      project(gy[0], net.w2(0) + first * net.stride, net.stride, ga);
      if constexpr (kOutputs == 2) {
        project(gy[1], net.w2(1) + first * net.stride, net.stride, ga);
      }
      scatter_sum<F::kLanes, kValues>(ga);
      __syncwarp();
      const int token = owned_token();
      for (int i = 0; i < kOwned; ++i) {
        const int unit = first + owned_unit() + i;
        const bool inside = unit < net.hidden;
        const float s = sigmoid(h[i]), silu = h[i] * s;
        const float given = ga[i];
        a.row(token)[unit] = inside ? factor * silu : 0.0F;
        g.row(token)[unit] = inside ? factor * given * s * (1.0F + h[i] * (1.0F - s)) : 0.0F;
        if (inside && token < count) dot += given * silu;
      }
      __syncwarp();
      spread(g, first, net.w1 + first * net.stride, net.stride, 1.0F, gx);
      if (y_sign != 0) {
        spread(a, first, net.w2(0) + first * net.stride, net.stride, y_sign, y);
      }
    }
    return dot;
  }
};

}  // namespace duet::coupling
