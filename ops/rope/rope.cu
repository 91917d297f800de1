// CUDA kernels of rope: a thread for each group of pairs (i, i + D/2) of one head of one token.
#include <cmath>

#include "ops/rope/rope.h"
#include "runtime/cuda/block.cuh"

namespace duet {
namespace {

constexpr int kThreads = 256;

// Angles in double: at token 100,000 a float angle would be off by 0.01.
__global__ void table_kernel(double theta, std::int64_t length, std::int64_t half, float* table) {
  for (std::int64_t n = cuda::global_thread(); n < length * half; n += cuda::global_threads()) {
    const std::int64_t t = n / half, i = n % half;
    const double exponent = -static_cast<double>(i) / static_cast<double>(half);
    const double angle = static_cast<double>(t) * pow(theta, exponent);
    float* row = table + t * 2 * half;
    row[i] = static_cast<float>(cos(angle));
    row[half + i] = static_cast<float>(sin(angle));
  }
}

void table(double theta, View out) {
  const std::int64_t length = out.size(0), half = out.size(2);
  if (out.numel() == 0) return;
  GPU_LAUNCH(table_kernel, cuda::blocks_for(length * half, kThreads), kThreads, 0, theta, length,
             half, out.as<float>());
}

// What is fixed in one launch. Sizes and strides of D count pairs, or groups of four of them.
struct Rotation {
  const float* x;
  const float* cos;  // of the first token; sin lies sin_offset behind
  float* y;          // contiguous
  std::int64_t time, heads, half;
  std::int64_t batch_stride, time_stride, head_stride, stride;
  std::int64_t table_stride, sin_offset, angle_stride;
  float sign;
};

// A float, or four that lie side by side.
__device__ float rotated(float x, float c, float y, float s) { return x * c + y * s; }
__device__ float4 rotated(float4 x, float4 c, float4 y, float4 s) {
  return {rotated(x.x, c.x, y.x, s.x), rotated(x.y, c.y, y.y, s.y), rotated(x.z, c.z, y.z, s.z),
          rotated(x.w, c.w, y.w, s.w)};
}
__device__ float times(float sign, float s) { return sign * s; }
__device__ float4 times(float sign, float4 s) {
  return {sign * s.x, sign * s.y, sign * s.z, sign * s.w};
}

// y1 = x1 cos - x2 sin ; y2 = x2 cos + x1 sin. Index is 32 bits wide where the groups allow it:
// divisions are what this kernel would wait for.
template <class Vector, class Index>
__global__ void rotate_kernel(Rotation r, std::int64_t groups) {
  constexpr std::int64_t kWide = sizeof(Vector) / sizeof(float);
  const Index per_head = static_cast<Index>(r.half / kWide), heads = static_cast<Index>(r.heads);
  const Index time = static_cast<Index>(r.time);
  for (std::int64_t n = cuda::global_thread(); n < groups; n += cuda::global_threads()) {
    const Index row = static_cast<Index>(n) / per_head, token = row / heads;
    const std::int64_t i = static_cast<std::int64_t>(static_cast<Index>(n) % per_head) * kWide;
    const std::int64_t h = row % heads, b = token / time, t = token % time;
    const auto at = [](const float* p) { return *reinterpret_cast<const Vector*>(p); };
    const float* x = r.x + b * r.batch_stride + t * r.time_stride + h * r.head_stride;
    const float* angles = r.cos + t * r.table_stride + i * r.angle_stride;
    const Vector x1 = at(x + i * r.stride), x2 = at(x + (r.half + i) * r.stride);
    const Vector c = at(angles), s = times(r.sign, at(angles + r.sin_offset));
    float* y = r.y + static_cast<std::int64_t>(row) * 2 * r.half + i;
    *reinterpret_cast<Vector*>(y) = rotated(x1, c, x2, times(-1.0F, s));
    *reinterpret_cast<Vector*>(y + r.half) = rotated(x2, c, x1, s);
  }
}

template <class Vector>
void launch_rotate(const Rotation& r, std::int64_t pairs) {
  const std::int64_t groups = pairs / static_cast<std::int64_t>(sizeof(Vector) / sizeof(float));
  const unsigned blocks = cuda::blocks_for(groups, kThreads);
  if (groups <= std::int64_t{1} << 31) {
    GPU_LAUNCH((rotate_kernel<Vector, std::uint32_t>), blocks, kThreads, 0, r, groups);
  } else {
    GPU_LAUNCH((rotate_kernel<Vector, std::uint64_t>), blocks, kThreads, 0, r, groups);
  }
}

bool in_fours(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
bool in_fours(std::int64_t elements) { return elements % 4 == 0; }

void rotate(ConstView x, ConstView angles, std::int64_t position, bool inverse, View y) {
  if (x.numel() == 0) return;
  const Rotation r{x.as<float>(),    angles.as<float>() + position * angles.stride(0),
                   y.as<float>(),    x.size(1),
                   x.size(2),        x.size(3) / 2,
                   x.stride(0),      x.stride(1),
                   x.stride(2),      x.stride(3),
                   angles.stride(0), angles.stride(1),
                   angles.stride(2), inverse ? -1.0F : 1.0F};
  const bool wide = r.stride == 1 && r.angle_stride == 1 && in_fours(r.x) && in_fours(r.cos) &&
                    in_fours(r.y) && in_fours(r.half) && in_fours(r.batch_stride) &&
                    in_fours(r.time_stride) && in_fours(r.head_stride) &&
                    in_fours(r.table_stride) && in_fours(r.sin_offset);
  if (wide) {
    launch_rotate<float4>(r, x.numel() / 2);
  } else {
    launch_rotate<float>(r, x.numel() / 2);
  }
}

}  // namespace

extern const RopeKernels rope_cuda{table, rotate};

}  // namespace duet
