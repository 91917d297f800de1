// Which element types an op takes where.
#pragma once

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace duet {

// f32 and f64 have kernels. On meta none runs, so a step in bf16 can be planned.
inline bool computes(DType dtype, Device device) {
  return dtype == DType::f32 || dtype == DType::f64 ||
         (dtype == DType::bf16 && device.type == DeviceType::meta);
}

}  // namespace duet
