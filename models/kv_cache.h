// KvCache: what decoding keeps of the tokens it has seen, per layer: keys as they are scored (after
// coupling and rotation) and values.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor.h"

namespace duet {

struct KvCache {
  struct Layer {
    Tensor k;  // [B, capacity, Hkv, D]
    Tensor v;  // [B, capacity, Hkv, D]
  };

  std::vector<Layer> layers;
  std::int64_t batch = 0;
  std::int64_t capacity = 0;
  std::int64_t length = 0;  // tokens held; the next one has this position
};

}  // namespace duet
