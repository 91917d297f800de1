// What diagnostics look at: tensors of one forward, kept aside when its context carries a capture.
#pragma once

#include <vector>

#include "runtime/tensor.h"

namespace duet {

// One layer's pair as it is scored: coupled, rotated. Query head h uses key head h / (Hq / Hkv).
struct AttentionCapture {
  Tensor q;       // [B, T, Hq, D]
  Tensor k;       // [B, T, Hkv, D]
  Tensor lambda;  // of scoring diff: []; of diff_v2: [B, T, H]; else undefined
};

struct ForwardCapture {
  std::vector<AttentionCapture> attention;
  std::vector<Tensor> residual;  // the residual stream behind each block, [B, T, C]
};

}  // namespace duet
