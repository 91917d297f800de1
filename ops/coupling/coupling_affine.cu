// The affine coupling on a GPU. The equations, and their way back, stand in affine_walk.h; here the
// queries of a group are never held one by one: the mean moves as each of them does.
#include "ops/coupling/launch.cuh"

namespace duet::coupling {
namespace {

constexpr int kHalfMatrices = 3;  // w1, and w2 of s and of t

// All matrices of a launch's nets, packed: one block each.
__global__ void __launch_bounds__(kThreads) coupling_pack_kernel(Task task, float* packed) {
  const std::int64_t half_net = blockIdx.x / kHalfMatrices;
  const int output = static_cast<int>(blockIdx.x % kHalfMatrices) - 1;
  const std::int64_t size = static_cast<std::int64_t>(task.hidden) * task.width;
  float* const to = packed + static_cast<std::int64_t>(blockIdx.x) * task.matrix();
  if (output < 0) {
    pack(task.w1 + half_net * size, task.hidden, task.width, false, task.padded_hidden, task.stride,
         to);
  } else {
    pack(task.w2 + (2 * half_net + output) * size, task.width, task.hidden, true,
         task.padded_hidden, task.stride, to);
  }
}

// The two nets of a step: half 0 moves the key, half 1 the queries.
struct Halves {
  const float* matrices;
  int matrix, stride, hidden;
  __device__ Net net(int half) const {
    return {matrices + half * kHalfMatrices * matrix, matrix, stride, hidden};
  }
};

// The matrices of the block's net, in shared memory or where they were packed.
__device__ Halves load_halves(const Task& task, float* shared) {
  const std::int64_t net = task.work.net();
  const int matrix = task.matrix();
  if (task.packed != nullptr) {
    return {task.packed + net * 2 * kHalfMatrices * matrix, matrix, task.stride, task.hidden};
  }
  const std::int64_t size = static_cast<std::int64_t>(task.hidden) * task.width;
  for (int half = 0; half < 2; ++half) {
    const std::int64_t half_net = 2 * net + half;
    float* to = shared + half * kHalfMatrices * matrix;
    pack(task.w1 + half_net * size, task.hidden, task.width, false, task.padded_hidden, task.stride,
         to);
    for (int output = 0; output < 2; ++output) {
      to += matrix;
      pack(task.w2 + (2 * half_net + output) * size, task.width, task.hidden, true,
           task.padded_hidden, task.stride, to);
    }
  }
  __syncthreads();
  return {shared, matrix, task.stride, task.hidden};
}
__device__ float* after_matrices(const Task& task, float* shared) {
  return task.packed != nullptr ? shared : shared + 2 * kHalfMatrices * task.matrix();
}

// s = tanh(Ws a) and t = Wt a, a = silu(W1 x).
template <int kWidth>
struct Scales {
  Fragment<kWidth> s, t;
};
template <int kWidth>
__device__ __forceinline__ Scales<kWidth> scales_of(const Net& net, const Fragment<kWidth>& x,
                                                    const UnitTile& units) {
  Fragment<kWidth> y[2] = {};
  NetMath<kWidth>::evaluate(net, x, 1.0F, units, y);
  y[0].each([](float& s) { s = tanhf(s); });
  return {y[0], y[1]};
}

template <int kWidth>
__device__ __forceinline__ void swap(Fragment<kWidth>& x, Fragment<kWidth>& y) {
  const Fragment<kWidth> old = x;
  x = y;
  y = old;
}

// y = y exp(s) + t
template <int kWidth>
__device__ __forceinline__ void scale_and_shift(Fragment<kWidth>& y, const Scales<kWidth>& by) {
  y.each([](float& to, float s, float t) { to = to * expf(s) + t; }, by.s, by.t);
}

// tile = tile exp(s)
template <int kWidth>
__device__ __forceinline__ void multiply(float* tile, const Fragment<kWidth>& s) {
  Fragment<kWidth> x = get_wide<kWidth>(tile);
  x.each([](float& value, float exponent) { value *= expf(exponent); }, s);
  put_wide(x, tile);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    coupling_affine_forward_kernel(Task task, Rows q_out, Rows k_out) {
  using F = Fragment<kWidth>;
  GPU_DYN_SHARED(float, shared);
  const Halves halves = load_halves(task, shared);
  const UnitTile units{after_matrices(task, shared), kUnits + 4};
  const float share = 1.0F / static_cast<float>(task.group);
  const unsigned tiles = task.work.tiles(F::kTokens);
  for (unsigned index = task.work.block(); index < tiles; index += task.work.blocks) {
    const TokenTile tile = task.work.tile(index, F::kTokens);
    F x = load_group<kWidth>(task.q, tile, task.group, share);
    F k = load<kWidth>(task.k, tile, tile.head);
    F scale = {}, shift = {};  // of all steps: x scale + shift, for every query of the group
    scale.each([](float& e) { e = 1; });
    for (int i = 0; i < task.steps; ++i) {
      scale_and_shift(k, scales_of(halves.net(0), x, units));
      const Scales<kWidth> by = scales_of(halves.net(1), k, units);
      scale_and_shift(x, by);
      if (task.group == 1) continue;
      scale.each([](float& e, float s) { e *= expf(s); }, by.s);
      scale_and_shift(shift, by);
    }
    store(k, k_out, tile, tile.head);
    if (task.group == 1) {
      store(x, q_out, tile, tile.head);
      continue;
    }
    move_group<kWidth>(
        task.q, q_out, tile, task.group, [](float& q, float e, float t) { q = q * e + t; }, scale,
        shift);
  }
}

// Of a group of queries x_m, with gradients g_m, backward needs their mean x, the sum G of g_m, and
//   V = sum over m of g_m (x_m - x),
// as sum of g_m x_m = G x + V. A step multiplies x_m - x by exp(s2), and g_m by as much on the way
// back, but for what all g_m have in common, which falls out of V: with the x_m after the last step
// and the g_m given there, V exp(s2) is the same in front of every step.
template <int kWidth>
__device__ __forceinline__ Fragment<kWidth> spread_of_group(const Rows& q, const Rows& gradient,
                                                            const TokenTile& tile, int group,
                                                            const Fragment<kWidth>& mean) {
  Fragment<kWidth> sum = {};
  for (int m = 0; m < group; ++m) {
    const int head = tile.head * group + m;
    sum.each([](float& v, float g, float x, float middle) { v += g * (x - middle); },
             load<kWidth>(gradient, tile, head), load<kWidth>(q, tile, head), mean);
  }
  return sum;
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    coupling_affine_backward_kernel(Task task, TaskGradients gradients) {
  using F = Fragment<kWidth>;
  GPU_DYN_SHARED(float, shared);
  const Halves halves = load_halves(task, shared);
  float* wide = after_matrices(task, shared);
  const int unit_stride = task.padded_hidden + 4;
  // Behind the tiles of a stage, what would fill the registers; each thread uses its own alone.
  float* const k_before = wide + 3 * F::kTokens * kWidth;
  float* const spread = k_before + F::kTokens * kWidth;  // V above
  float* const scale = spread + F::kTokens * kWidth;     // of a query, from first step to last
  const UnitTile g{scale + F::kTokens * kWidth, unit_stride};
  const UnitTile a{g.data + F::kTokens * unit_stride, unit_stride};
  const float share = 1.0F / static_cast<float>(task.group);

  const bool weights = gradients.parts != nullptr;
  float *part = nullptr, *query_part = nullptr;
  if (weights) {
    const std::int64_t place = std::int64_t{task.work.block()} * task.work.nets + task.work.net();
    part = gradients.parts + place * gradients.part_size;
    query_part = part + kHalfMatrices * task.padded_hidden * kWidth;
  }
  const int matrices = weights ? kHalfMatrices : 0;
  const bool grouped = task.group > 1;
  WeightSums<kWidth, 1> key_sums(matrices, task.padded_hidden, part);
  WeightSums<kWidth, 1> query_sums(matrices, task.padded_hidden, query_part);

  // With `from` the half of the pair that moves `to` in a half-step, `to` as it is before that, s
  // of the half-step, and gs and gt:
  //   g_from += the way back through the net      g_to = gt exp(s)
  // `to` and s wait in shared memory meanwhile, in tiles that the weights' gradients want later.
  const auto half_step_backward = [&](int half, int count, const F& from, F& to, const F& s,
                                      F(&gy)[2], F& g_from, F& g_to) {
    put_wide(to, wide);
    put_wide(s, wide + F::kTokens * kWidth);
    F none = {};
    NetMath<kWidth>::backward(halves.net(half), from, gy, 1.0F, count, g, a, g_from, 0.0F, none);
    to = get_wide<kWidth>(wide);
    g_to = gy[1];
    g_to.each([](float& given, float exponent) { given *= expf(exponent); },
              get_wide<kWidth>(wide + F::kTokens * kWidth));
    if (!weights) return;
    put_wide(from, wide);
    put_wide(gy[0], wide + F::kTokens * kWidth);
    put_wide(gy[1], wide + 2 * F::kTokens * kWidth);
    __syncthreads();
    if (half == 0) {
      key_sums.add({g, a, wide}, count);
    } else {
      query_sums.add({g, a, wide}, count);
    }
    __syncthreads();
  };

  const unsigned tiles = task.work.tiles(F::kTokens);
  for (unsigned index = task.work.block(); index < tiles; index += task.work.blocks) {
    const TokenTile tile = task.work.tile(index, F::kTokens);
    if (grouped) {
      F one;
      one.each([](float& e) { e = 1; });
      put_wide(one, scale);
      const F mean = load_group<kWidth>(task.q, tile, task.group, share);
      put_wide(spread_of_group(task.q, gradients.q_out, tile, task.group, mean), spread);
    }
    F from = {}, to = {};
    F g_to = load_group<kWidth>(gradients.q_out, tile, task.group, 1.0F);
    F g_from = load<kWidth>(gradients.k_out, tile, tile.head);
    // Half-steps, last first: an even one moves the key by the mean query, an odd one the mean
    // query by the key. From one to the next `from` and `to` change places.
    const int last = 2 * task.steps - 1;
    for (int i = last; i >= 0; --i) {
      const int half = i % 2;
      int j = i;  // the half-step before which `from` and `to` are known
      if (task.run_back ? i == last : half == 1) {
        to = load_group<kWidth>(task.q, tile, task.group, share);
        from = load<kWidth>(task.k, tile, tile.head);
        if (!task.run_back) {
          swap(from, to);
          j = 0;
        }
      } else if (!task.run_back) {
        to = get_wide<kWidth>(k_before);
      }
      Scales<kWidth> by;
      for (;; ++j) {
        by = scales_of(halves.net(j % 2), from, a);
        if (!task.run_back && i == last && j % 2 == 1 && grouped) multiply<kWidth>(spread, by.s);
        if (j == i) break;
        if (j == i - 1) put_wide(to, k_before);
        scale_and_shift(to, by);
        swap(from, to);
      }
      if (task.run_back) {
        to.each([](float& y, float s, float t) { y = (y - t) / expf(s); }, by.s, by.t);
      }
      F gy[2] = {{}, g_to};
      if (half == 1 && grouped) {
        gy[0] = get_wide<kWidth>(spread);
        multiply<kWidth>(scale, by.s);
      }
      gy[0].each([](float& gs, float s, float before,
                    float given) { gs = (gs + given * before * expf(s)) * (1.0F - s * s); },
                 by.s, to, g_to);
      half_step_backward(half, tile.count, from, to, by.s, gy, g_from, g_to);
      swap(from, to);
      swap(g_from, g_to);
    }
    const F &gx = g_to, &gk = g_from;
    store(gk, gradients.k, tile, tile.head);
    if (task.group == 1) {
      store(gx, gradients.q, tile, tile.head);
      continue;
    }
    // g_m = g_m scale, and an equal share of what came through the nets.
    const F given = load_group<kWidth>(gradients.q_out, tile, task.group, 1.0F);
    move_group<kWidth>(
        gradients.q_out, gradients.q, tile, task.group,
        [share](float& gq, float e, float now, float then) {
          gq = gq * e + share * (now - then * e);
        },
        get_wide<kWidth>(scale), gx, given);
  }

  if (!weights) return;
  key_sums.finish(wide);
  __syncthreads();
  query_sums.finish(wide);
}

void pack_matrices(const Task& task) {
  if (task.packed == nullptr) return;
  GPU_LAUNCH(coupling_pack_kernel, task.work.nets * 2 * kHalfMatrices, kThreads, 0, task,
             const_cast<float*>(task.packed));
}

}  // namespace

void launch_affine_forward(const Task& task, const CouplingCudaLayout& layout,
                           std::int64_t shared_bytes, const Rows& q_out, const Rows& k_out) {
  pack_matrices(task);
  with_width(layout.width, [&]<int kWidth>() {
    const auto coupling_affine_forward = coupling_affine_forward_kernel<kWidth>;
    GPU_LAUNCH(coupling_affine_forward, task.work.blocks * task.work.nets, kThreads,
               static_cast<std::size_t>(shared_bytes), task, q_out, k_out);
  });
}

void launch_affine_backward(const Task& task, const CouplingCudaLayout& layout,
                            std::int64_t shared_bytes, const TaskGradients& gradients) {
  pack_matrices(task);
  with_width(layout.width, [&]<int kWidth>() {
    const auto coupling_affine_backward = coupling_affine_backward_kernel<kWidth>;
    GPU_LAUNCH(coupling_affine_backward, task.work.blocks * task.work.nets, kThreads,
               static_cast<std::size_t>(shared_bytes), task, gradients);
  });
}

}  // namespace duet::coupling
