// The table of the couplings' kernels on a GPU, and the small kernels around the big ones: matrices
// packed before them, and the parts of weight gradients summed after them.
#include "ops/coupling/launch.cuh"

namespace duet::coupling {
namespace {

bool is_affine(CouplingMap map) { return map == CouplingMap::affine; }

// Where gradients of the weights go; null data: not wanted.
struct WeightGradients {
  float *w1, *w2, *dt;
  bool add_w1, add_w2, add_dt;
};

constexpr int kPartLanes = 8, kElements = kThreads / kPartLanes;

// parts [blocks, nets, part_size] are summed in the order of blocks. A part is `matrices` sums
// [padded hidden, padded width], then the gradient of dt; the matrices of a net, or of half an
// affine one, are w1 and its w2 transposed.
__global__ void __launch_bounds__(kThreads)
    coupling_sum_parts_kernel(Task task, const float* parts, std::int64_t part_size, int matrices,
                              int padded_width, WeightGradients to) {
  GPU_SHARED(double, sums, [kPartLanes][kElements]);
  const int element = static_cast<int>(threadIdx.x) % kElements;
  const int lane = static_cast<int>(threadIdx.x) / kElements;
  const std::int64_t stride = task.work.nets * part_size;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kElements + element;
  double sum = 0;
  for (std::int64_t block = lane; block < task.work.blocks && at < stride; block += kPartLanes) {
    sum += static_cast<double>(parts[block * stride + at]);
  }
  sums[lane][element] = sum;
  __syncthreads();
  if (lane != 0 || at >= stride) return;
  for (int i = 1; i < kPartLanes; ++i) sum += sums[i][element];

  const std::int64_t net = at / part_size;
  const int in_part = static_cast<int>(at % part_size),
            in_matrix = task.padded_hidden * padded_width;
  const int matrix = in_part / in_matrix, unit = in_part % in_matrix / padded_width;
  const int column = in_part % padded_width;
  const auto put = [](float* out, bool add, double value) {
    *out = static_cast<float>((add ? static_cast<double>(*out) : 0.0) + value);
  };
  if (matrix == matrices) {
    if (in_part == matrices * in_matrix && to.dt != nullptr) put(to.dt + net, to.add_dt, sum);
    return;
  }
  if (unit >= task.hidden || column >= task.width) return;
  const bool affine = task.dt == nullptr;
  const std::int64_t size = static_cast<std::int64_t>(task.hidden) * task.width;
  const int half = affine ? matrix / 3 : 0, output = matrix - 3 * half - 1;  // -1: w1
  const std::int64_t half_net = affine ? 2 * net + half : net;
  if (output < 0) {
    if (to.w1 == nullptr) return;
    put(to.w1 + half_net * size + static_cast<std::int64_t>(unit) * task.width + column, to.add_w1,
        sum);
  } else if (to.w2 != nullptr) {
    const std::int64_t w2 = affine ? 2 * half_net + output : half_net;
    put(to.w2 + w2 * size + static_cast<std::int64_t>(column) * task.hidden + unit, to.add_w2, sum);
  }
}

void forward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in, View q_out, View k_out,
             View workspace, std::int64_t /*threads*/) {
  const CouplingCudaLayout layout(sizes, false);
  if (layout.blocks == 0 || sizes.width == 0) return;
  const Task task(sizes, layout, in, workspace, /*rotated=*/false);
  const auto* const rotation = in.rotation.as<float>();
  const Rows q(q_out, rotation), k(k_out, rotation);
  if (is_affine(sizes.map)) {
    launch_affine_forward(task, layout, layout.shared_bytes(sizes), q, k);
  } else {
    launch_pair_forward(task, layout, layout.shared_bytes(sizes), q, k);
  }
}

void backward(const CouplingSizes& sizes, const CouplingKernels::Inputs& in,
              const CouplingKernels::Gradients& gradients, View workspace,
              std::int64_t /*threads*/) {
  const CouplingCudaLayout layout(sizes, true);
  const Task task(sizes, layout, in, workspace, /*rotated=*/sizes.run_back);
  const bool weights =
      gradients.w1.data != nullptr || gradients.w2.data != nullptr || gradients.dt.data != nullptr;
  float* const parts = workspace.as<float>() + layout.parts_begin;
  if (layout.blocks > 0) {
    const TaskGradients to(gradients, in.rotation.as<float>(), weights ? parts : nullptr,
                           layout.part_size);
    if (is_affine(sizes.map)) {
      launch_affine_backward(task, layout, layout.shared_bytes(sizes), to);
    } else {
      launch_pair_backward(task, layout, layout.shared_bytes(sizes), to);
    }
  }
  const std::int64_t elements = sizes.nets * layout.part_size;
  if (!weights || elements == 0) return;
  const WeightGradients to{gradients.w1.as<float>(), gradients.w2.as<float>(),
                           gradients.dt.as<float>(), gradients.add_w1,
                           gradients.add_w2,         gradients.add_dt};
  GPU_LAUNCH(coupling_sum_parts_kernel,
             cuda::blocks_for(elements, kElements, std::int64_t{1} << 30), kThreads, 0, task, parts,
             layout.part_size, static_cast<int>(sizes.matrices()), static_cast<int>(layout.width),
             to);
}

}  // namespace
}  // namespace duet::coupling

namespace duet {

extern const CouplingKernels coupling_cuda{coupling::forward, coupling::backward};

}  // namespace duet
