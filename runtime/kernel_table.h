// Typed dispatch: per op, one struct of function pointers per device, bound by the linker. A
// missing CUDA kernel is a link error; go-to-definition works; nothing registers itself at
// start-up.
//
//   struct SoftmaxKernels { void (*forward)(ConstView x, View y); ... };
//   extern const SoftmaxKernels softmax_cpu;                           // softmax_cpu.cpp
//   extern const SoftmaxKernels softmax_cuda;                          // softmax.cu
//   constexpr KernelTable<SoftmaxKernels> kernels{"softmax", &softmax_cpu,
//                                                 DUET_CUDA_TABLE(softmax_cuda)};
//   kernels.launch(x.device(), &SoftmaxKernels::forward, x.view(), y.mutable_view());
#pragma once

#include <utility>

#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/launch_count.h"

// The table's address in a build for CUDA, else null: a build without CUDA has no such table.
#if DUET_CUDA_BUILD
#define DUET_CUDA_TABLE(table) (&(table))
#else
#define DUET_CUDA_TABLE(table) nullptr
#endif

namespace duet {

template <class Kernels>
struct KernelTable {
  const char* op;
  const Kernels* cpu;
  const Kernels* cuda = nullptr;  // null: the op has no kernels for CUDA, or the build is without

  // Runs one kernel on `device`. On meta nothing runs: shapes and allocations are all there is.
  // Throws Error(device) where this build has no kernel for the device.
  template <class... Params, class... Args>
  void launch(Device device, void (*Kernels::*kernel)(Params...), Args&&... args) const {
    if (device.type == DeviceType::meta) return;
    const Kernels* const kernels = device.type == DeviceType::cpu ? cpu : cuda;
    check(kernels != nullptr, ErrorKind::device, op, ": no ", name(device.type),
          " kernel in this build; run with --device cpu, or build with -DDUET_CUDA=ON");
    if (counting_launches && device.type == DeviceType::cuda) {
      const CountedCall counted(op, (viewed_bytes(args) + ... + std::uint64_t{0}));
      (kernels->*kernel)(std::forward<Args>(args)...);
      return;
    }
    (kernels->*kernel)(std::forward<Args>(args)...);
  }
};

}  // namespace duet
