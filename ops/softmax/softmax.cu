// softmax on the GPU: a group of threads per row.
#include <limits>

#include "ops/row_group.cuh"
#include "ops/softmax/softmax.h"

namespace duet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// y = exp(x - max) / sum(exp(x - max)) of each row of x [rows, width]
template <class Group>
__global__ void softmax_rows_kernel(const float* x, float* y, std::int64_t rows,
                                    std::int64_t width) {
  for (std::int64_t i = blockIdx.x * std::int64_t{Group::kGroups} + Group::group(); i < rows;
       i += gridDim.x * std::int64_t{Group::kGroups}) {
    const float* row = x + i * width;
    float e[Group::kShare];
    Group::load(row, width, e);
    float largest = -kInfinity;
    Group::each(width, [&](int k, std::int64_t j) {
      largest = cuda::Max{}(largest, Group::at(row, e, k, j));
    });
    largest = Group::template reduce<cuda::Max>(largest);
    float sum = 0;
    Group::each(width, [&](int k, std::int64_t j) {
      e[k] = expf(Group::at(row, e, k, j) - largest);
      sum += e[k];
    });
    const float factor = 1.0F / Group::template reduce<cuda::Sum>(sum);
    Group::each(width, [&](int k, std::int64_t j) {
      y[i * width + j] = (Group::is_cached ? e[k] : expf(row[j] - largest)) * factor;
    });
  }
}

// dx = y (dy - <dy, y>) of each row
template <class Group>
__global__ void softmax_gradient_kernel(const float* y, const float* dy, float* dx,
                                        std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = blockIdx.x * std::int64_t{Group::kGroups} + Group::group(); i < rows;
       i += gridDim.x * std::int64_t{Group::kGroups}) {
    const float *y_row = y + i * width, *dy_row = dy + i * width;
    float probs[Group::kShare], grads[Group::kShare];
    Group::load(y_row, width, probs);
    Group::load(dy_row, width, grads);
    float dot = 0;
    Group::each(width, [&](int k, std::int64_t j) {
      dot += Group::at(y_row, probs, k, j) * Group::at(dy_row, grads, k, j);
    });
    dot = Group::template reduce<cuda::Sum>(dot);
    Group::each(width, [&](int k, std::int64_t j) {
      dx[i * width + j] = Group::at(y_row, probs, k, j) * (Group::at(dy_row, grads, k, j) - dot);
    });
  }
}

void softmax_forward(ConstView x, View y) {
  if (x.numel() == 0) return;
  const std::int64_t width = x.size(-1), rows = x.numel() / width;
  visit_row_group(width, [&]<class Group>(Group) {
    GPU_LAUNCH((softmax_rows_kernel<Group>), Group::blocks(rows), kRowThreads, 0, x.as<float>(),
               y.as<float>(), rows, width);
  });
}

void softmax_backward(ConstView y, ConstView dy, View dx) {
  if (y.numel() == 0) return;
  const std::int64_t width = y.size(-1), rows = y.numel() / width;
  visit_row_group(width, [&]<class Group>(Group) {
    GPU_LAUNCH((softmax_gradient_kernel<Group>), Group::blocks(rows), kRowThreads, 0, y.as<float>(),
               dy.as<float>(), dx.as<float>(), rows, width);
  });
}

}  // namespace

extern const SoftmaxKernels softmax_cuda{softmax_forward, softmax_backward};

}  // namespace duet
