// One warp's product of bfloat16 tiles, and the same with a bug planted.
#pragma once

#include <vector>

#include "tests/sim_cuda/engine.h"

namespace sim {

enum class TileBug {
  none,
  no_wait,           // the copies are never waited for before the tiles are read
  waits_too_little,  // the last tile is still on its way
  never_waited_for,  // the kernel ends with copies on their way
  misaligned_row,    // ldmatrix
  half_warp          // mma by 16 lanes
};

// C[16,8] = A[16,k] B[k,8], rounded to bfloat16 first; k is a multiple of 16. `by_rows`: B lies in
// shared memory as [16,8] and is loaded transposed, else as [8,16].
std::vector<float> tile_matmul(const std::vector<float>& a, const std::vector<float>& b, int k,
                               bool by_rows, TileBug bug = TileBug::none);

}  // namespace sim
