// Typed dispatch: per op, one struct of function pointers per device, bound by the linker. A
// missing CUDA kernel is a link error; go-to-definition works; nothing registers itself at
// start-up.
//
//   struct SoftmaxKernels { void (*forward)(ConstView x, View y); ... };
//   extern const SoftmaxKernels softmax_cpu;                           // softmax_cpu.cpp
//   constexpr KernelTable<SoftmaxKernels> kernels{"softmax", &softmax_cpu};
//   kernels.launch(x.device(), &SoftmaxKernels::forward, x.view(), y.mutable_view());
#pragma once

#include <utility>

#include "runtime/device.h"
#include "runtime/error.h"

namespace duet {

template <class Kernels>
struct KernelTable {
  const char* op;
  const Kernels* cpu;

  // Runs one kernel on `device`. On meta nothing runs: shapes and allocations are all there is.
  // Throws Error(device) where this build has no kernel for the device.
  template <class... Params, class... Args>
  void launch(Device device, void (*Kernels::*kernel)(Params...), Args&&... args) const {
    if (device.type == DeviceType::meta) return;
    check(device.type == DeviceType::cpu, ErrorKind::device, op, ": no ", name(device.type),
          " kernel in this build; run with --device cpu");
    (cpu->*kernel)(std::forward<Args>(args)...);
  }
};

}  // namespace duet
