// The one place that knows which oneDNN this is: 2.x (Debian 12) describes an operation before the
// primitive, 3.x builds the primitive descriptor at once.
#pragma once

#include <oneapi/dnnl/dnnl_version.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace duet::onednn {

inline constexpr int kMajor = DNNL_VERSION_MAJOR;

// c = a @ b (+ bias); `bias` may be null. Throws dnnl::error where the shapes are not supported.
inline dnnl::matmul::primitive_desc matmul_descriptor(
    const dnnl::engine& engine, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
    const dnnl::memory::desc* bias, const dnnl::memory::desc& c, const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias != nullptr) return {engine, a, b, *bias, c, attr};
  return {engine, a, b, c, attr};
#else
  if (bias != nullptr) return {dnnl::matmul::desc(a, b, *bias, c), attr, engine};
  return {dnnl::matmul::desc(a, b, c), attr, engine};
#endif
}

}  // namespace duet::onednn
