// The couplings that move a pair by dt and f, on a GPU: all stages on fragments in registers. The
// equations, and their ways back, stand in pair_steps.h.
#include "ops/coupling/launch.cuh"

namespace duet::coupling {
namespace {

struct Stage {
  float kick, drift;
};
__device__ Stage stage_of(const Task& task, int index) {
  if (task.map != CouplingMap::leapfrog) return {1, 1};
  const bool first = index == 0, last = index == task.steps;
  return {first || last ? 0.5F : 1.0F, last ? 0.0F : 1.0F};
}
__device__ int stages_of(const Task& task) {
  return task.steps + (task.map == CouplingMap::leapfrog ? 1 : 0);
}

// The matrices of the block's net, packed into shared memory. Ends with a barrier.
__device__ Net load_net(const Task& task, float* shared) {
  const std::int64_t from = std::int64_t{task.work.net()} * task.hidden * task.width;
  const int matrix = task.matrix();
  pack(task.w1 + from, task.hidden, task.width, false, task.padded_hidden, task.stride, shared);
  pack(task.w2 + from, task.width, task.hidden, true, task.padded_hidden, task.stride,
       shared + matrix);
  __syncthreads();
  return {shared, matrix, task.stride, task.hidden};
}

// y += alpha x
template <int kWidth>
__device__ __forceinline__ void add_scaled(Fragment<kWidth>& y, float alpha,
                                           const Fragment<kWidth>& x) {
  y.each([alpha](float& to, float from) { to += alpha * from; }, x);
}
// Of the rows before `count`.
template <int kWidth>
__device__ __forceinline__ float dot(const Fragment<kWidth>& x, const Fragment<kWidth>& y,
                                     int count) {
  using F = Fragment<kWidth>;
  float sum = 0;
  for (int r = 0; r < F::kRows; ++r) {
    if (F::row() + r >= count) continue;
    for (int i = 0; i < 4; ++i) sum += x.at[r][i] * y.at[r][i];
  }
  return sum;
}

template <int kWidth>
__device__ __forceinline__ void move_pair(const Task& task, const Net& net, int index, float dt,
                                          const UnitTile& units, Fragment<kWidth>& x,
                                          Fragment<kWidth>& k) {
  const Stage stage = stage_of(task, index);
  Fragment<kWidth> f[1] = {};
  NetMath<kWidth>::evaluate(net, x, stage.kick, units, f);
  if (task.map == CouplingMap::uncoupled) {
    add_scaled(x, dt, f[0]);
  } else if (task.map == CouplingMap::euler) {
    add_scaled(x, dt, k);
    add_scaled(k, dt, f[0]);
  } else {
    add_scaled(k, dt, f[0]);
    if (stage.drift != 0) add_scaled(x, stage.drift * dt, k);
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 4)
    coupling_pair_forward_kernel(Task task, Rows q_out, Rows k_out) {
  using F = Fragment<kWidth>;
  GPU_DYN_SHARED(float, shared);
  const Net net = load_net(task, shared);
  const UnitTile units{shared + 2 * task.matrix(), kUnits + 4};
  const float dt = task.dt[task.work.net()], share = 1.0F / static_cast<float>(task.group);
  const unsigned tiles = task.work.tiles(F::kTokens);
  for (unsigned index = task.work.block(); index < tiles; index += task.work.blocks) {
    const TokenTile tile = task.work.tile(index, F::kTokens);
    // A step of size 0 is the identity to the last bit, -0 and infinities included.
    if (dt == 0) {
      copy_group<kWidth>(task.q, q_out, tile, task.group);
      copy_group<kWidth>(task.k, k_out, tile, 1);
      continue;
    }
    F x = load_group<kWidth>(task.q, tile, task.group, share);
    F k = load<kWidth>(task.k, tile, tile.head);
    for (int i = 0; i < stages_of(task); ++i) move_pair(task, net, i, dt, units, x, k);
    store(k, k_out, tile, tile.head);
    if (task.group == 1) {
      store(x, q_out, tile, tile.head);
      continue;
    }
    const F before = load_group<kWidth>(task.q, tile, task.group, share);
    move_group<kWidth>(
        task.q, q_out, tile, task.group, [](float& q, float now, float then) { q += now - then; },
        x, before);
  }
}

// The stages, last first: x and k of the pair before each are made again from the first, or taken
// back from the last one.
template <int kWidth, int kSquares>
__global__ void __launch_bounds__(kThreads, 2)
    coupling_pair_backward_kernel(Task task, TaskGradients gradients) {
  using F = Fragment<kWidth>;
  GPU_DYN_SHARED(float, shared);
  const Net net = load_net(task, shared);
  float* wide = shared + 2 * task.matrix();
  const int unit_stride = task.padded_hidden + 4;
  const UnitTile g{wide + 2 * F::kTokens * kWidth, unit_stride};
  const UnitTile a{g.data + F::kTokens * unit_stride, unit_stride};
  const float dt = task.dt[task.work.net()], share = 1.0F / static_cast<float>(task.group);

  const bool weights = gradients.parts != nullptr;
  float* part = nullptr;
  if (weights) {
    const std::int64_t place = std::int64_t{task.work.block()} * task.work.nets + task.work.net();
    part = gradients.parts + place * gradients.part_size;
  }
  WeightSums<kWidth, kSquares> sums(weights ? 2 : 0, task.padded_hidden, part);
  double dt_sum = 0;

  // gy is the gradient at what f moves: the key, or x itself where it moves alone. Then nothing is
  // left for gx.
  const bool alone = task.map == CouplingMap::uncoupled;
  const bool kick_drift =
      task.map == CouplingMap::leapfrog || task.map == CouplingMap::symplectic_euler;
  const int last = stages_of(task) - 1;
  const unsigned tiles = task.work.tiles(F::kTokens);
  for (unsigned index = task.work.block(); index < tiles; index += task.work.blocks) {
    const TokenTile tile = task.work.tile(index, F::kTokens);
    if (dt != 0 || weights) {
      F x = {}, k = {};
      F gx = load_group<kWidth>(gradients.q_out, tile, task.group, 1.0F);
      F gy[1];
      if (alone) {
        gy[0] = gx;
      } else {
        gy[0] = load<kWidth>(gradients.k_out, tile, tile.head);
      }
      float dt_gradient = 0;
      for (int i = last; i >= 0; --i) {
        const Stage stage = stage_of(task, i);
        if (!task.run_back || i == last) {
          x = load_group<kWidth>(task.q, tile, task.group, share);
          k = load<kWidth>(task.k, tile, tile.head);
        }
        if (task.run_back) {
          if (stage.drift != 0) {
            add_scaled(x, -stage.drift * dt, k);
            dt_gradient += stage.drift * dot(gx, k, tile.count);
          }
        } else {
          for (int j = 0; j < i; ++j) move_pair(task, net, j, dt, a, x, k);
        }
        if (kick_drift && stage.drift != 0) add_scaled(gy[0], stage.drift * dt, gx);

        // Run back, k becomes the key before the stage; else the key after it, where that is used.
        const float k_sign = !kick_drift        ? 0.0F
                             : task.run_back    ? -1.0F
                             : stage.drift != 0 ? 1.0F
                                                : 0.0F;
        F gain = {};
        dt_gradient += stage.kick * NetMath<kWidth>::backward(net, x, gy, stage.kick * dt,
                                                              tile.count, g, a, gain, k_sign, k);
        if (weights) {
          put_wide(x, wide);
          put_wide(gy[0], wide + F::kTokens * kWidth);
          __syncthreads();
          sums.add({g, a, wide}, tile.count);
          __syncthreads();
        }
        if (alone) {
          add_scaled(gy[0], 1.0F, gain);
          continue;
        }
        if (!task.run_back && stage.drift != 0) {
          dt_gradient += stage.drift * dot(gx, k, tile.count);
        }
        if (!kick_drift) add_scaled(gy[0], dt, gx);
        add_scaled(gx, 1.0F, gain);
      }
      dt_sum += static_cast<double>(dt_gradient);
      if (dt != 0) {
        if (alone)
          gx = gy[0];
        else
          store(gy[0], gradients.k, tile, tile.head);
        if (task.group == 1) {
          store(gx, gradients.q, tile, tile.head);
          continue;
        }
        const F given = load_group<kWidth>(gradients.q_out, tile, task.group, 1.0F);
        move_group<kWidth>(
            gradients.q_out, gradients.q, tile, task.group,
            [share](float& gq, float now, float then) { gq += share * (now - then); }, gx, given);
        continue;
      }
    }
    copy_group<kWidth>(gradients.q_out, gradients.q, tile, task.group);
    copy_group<kWidth>(gradients.k_out, gradients.k, tile, 1);
  }

  if (!weights) return;
  sums.finish(wide);
  const double total = cuda::block_reduce<cuda::Sum, kThreads>(dt_sum);
  if (threadIdx.x == 0) part[2 * task.padded_hidden * kWidth] = static_cast<float>(total);
}

}  // namespace

void launch_pair_forward(const Task& task, const CouplingCudaLayout& layout,
                         std::int64_t shared_bytes, const Rows& q_out, const Rows& k_out) {
  with_width(layout.width, [&]<int kWidth>() {
    const auto coupling_pair_forward = coupling_pair_forward_kernel<kWidth>;
    GPU_LAUNCH(coupling_pair_forward, task.work.blocks * task.work.nets, kThreads,
               static_cast<std::size_t>(shared_bytes), task, q_out, k_out);
  });
}

void launch_pair_backward(const Task& task, const CouplingCudaLayout& layout,
                          std::int64_t shared_bytes, const TaskGradients& gradients) {
  with_width(layout.width, [&]<int kWidth>() {
    constexpr int kSlots = kThreads / Fragment<kWidth>::kLanes;
    const auto coupling_pair_backward = task.padded_hidden / 2 <= kSlots  // 2 h / 4 groups
                                            ? coupling_pair_backward_kernel<kWidth, 1>
                                            : coupling_pair_backward_kernel<kWidth, 4>;
    GPU_LAUNCH(coupling_pair_backward, task.work.blocks * task.work.nets, kThreads,
               static_cast<std::size_t>(shared_bytes), task, gradients);
  });
}

}  // namespace duet::coupling
