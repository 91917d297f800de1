// Which element types an op takes where.
#pragma once

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/error.h"

namespace duet {

// f32 and f64 have kernels on the cpu, f32 on cuda. On meta none runs, so a step in bf16 can be
// planned.
inline bool computes(DType dtype, Device device) {
  if (dtype == DType::bf16) return device.type == DeviceType::meta;
  return dtype == DType::f32 || (dtype == DType::f64 && device.kernels() == DeviceType::cpu);
}

// f64 is right on other devices, so it has a message of its own. Throws Error(dtype).
inline void check_no_f64_on_cuda(const char* op, DType dtype, Device device) {
  check(dtype != DType::f64 || device.kernels() != DeviceType::cuda, ErrorKind::dtype, op,
        ": float64 has no kernels on cuda: got f64, expected f32; convert it, or run with --device "
        "cpu");
}

}  // namespace duet
