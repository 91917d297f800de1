// What the launches of coupling_pair.cu, coupling_affine.cu and coupling.cu share.
#pragma once

#include "ops/coupling/weight_sums.cuh"

namespace duet::coupling {

// One launch: its work, the tensors, and the nets' matrices as a block wants them.
struct Task {
  Work work;
  CouplingMap map;
  int steps, group, width, hidden, padded_hidden, stride;
  bool run_back;
  Rows q, k;
  const float *w1, *w2, *dt;
  // Packed matrices of all nets; null: every block packs its own into shared memory.
  const float* packed;

  // `rotated`: q and k lie rotated by the rotation.
  Task(const CouplingSizes& s, const CouplingCudaLayout& layout, const CouplingKernels::Inputs& in,
       const View& workspace, bool rotated)
      : work{static_cast<unsigned>(s.tokens()), static_cast<unsigned>(s.time),
             static_cast<unsigned>(s.key_heads), static_cast<unsigned>(s.nets),
             static_cast<unsigned>(layout.blocks)},
        map(s.map),
        steps(static_cast<int>(s.steps)),
        group(static_cast<int>(s.group())),
        width(static_cast<int>(s.width)),
        hidden(static_cast<int>(s.hidden)),
        padded_hidden(static_cast<int>(layout.hidden)),
        stride(static_cast<int>(layout.width) + 4),
        run_back(s.run_back),
        q(in.q, rotated ? in.rotation.as<float>() : nullptr),
        k(in.k, rotated ? in.rotation.as<float>() : nullptr),
        w1(in.w1.as<float>()),
        w2(in.w2.as<float>()),
        dt(in.dt.as<float>()),
        packed(layout.matrices_in_shared ? nullptr : workspace.as<float>()) {}

  __host__ __device__ int matrix() const { return padded_hidden * stride; }
};

// The gradients given and wanted; null data: zero, not wanted. parts: null where no weight wants
// one.
struct TaskGradients {
  Rows q_out, k_out, q, k;
  float* parts;
  std::int64_t part_size;

  TaskGradients(const CouplingKernels::Gradients& g, const float* rotation, float* to,
                std::int64_t size)
      : q_out(g.q_out, rotation),
        k_out(g.k_out, rotation),
        q(g.q),
        k(g.k),
        parts(to),
        part_size(size) {}
};

// Calls f.operator()<kWidth>() with the padded width.
template <class F>
void with_width(std::int64_t width, F f) {
  switch (width) {
    case 16:
      return f.template operator()<16>();
    case 32:
      return f.template operator()<32>();
    case 64:
      return f.template operator()<64>();
    default:
      return f.template operator()<128>();
  }
}

void launch_pair_forward(const Task& task, const CouplingCudaLayout& layout,
                         std::int64_t shared_bytes, const Rows& q_out, const Rows& k_out);
void launch_pair_backward(const Task& task, const CouplingCudaLayout& layout,
                          std::int64_t shared_bytes, const TaskGradients& gradients);
void launch_affine_forward(const Task& task, const CouplingCudaLayout& layout,
                           std::int64_t shared_bytes, const Rows& q_out, const Rows& k_out);
void launch_affine_backward(const Task& task, const CouplingCudaLayout& layout,
                            std::int64_t shared_bytes, const TaskGradients& gradients);

}  // namespace duet::coupling
