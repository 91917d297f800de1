// Elementwise kernels for CUDA, of float32. A pointwise op's file is compiled for the device in a
// build with CUDA, else by the C++ compiler; what follows looks the same either way:
//
//   void scale_cuda_kernel(ConstView x, double factor, View y) {
//     elementwise(ScaleBody{static_cast<float>(factor)}, y.shape, {x}, {y});
//   }
//   constexpr ScaleKernels scale_cuda{scale_cuda_kernel};
//   constexpr KernelTable<ScaleKernels> kernels{"scale", &scale_cpu, device_table(scale_cuda)};
#pragma once

#include <array>
#include <cstdint>

#include "runtime/dtype.h"
#include "runtime/view.h"

#if DUET_DEVICE_CODE
#include "runtime/cuda/elementwise.cuh"
#endif

namespace duet {
namespace {  // differs from file to file

#if DUET_DEVICE_CODE
using cuda::elementwise;
template <class Kernels>
constexpr const Kernels* device_table(const Kernels& table) {
  return &table;
}
#else
// An op of a .cpp file, or a build without CUDA: no kernels, so that the table says so.
template <class Body>
void elementwise(const Body&, const Shape&, const std::array<ConstView, Body::kIn>&,
                 const std::array<View, Body::kOut>&) {}
template <class Kernels>
constexpr const Kernels* device_table(const Kernels&) {
  return nullptr;
}
#endif

}  // namespace

// What every body says of itself (see runtime/cuda/elementwise.cuh).
template <int kInputs, int kOutputs>
struct ElementwiseBody {
  using In = float;
  using Out = float;
  static constexpr int kIn = kInputs, kOut = kOutputs, kPack = 4;
};

}  // namespace duet
