// The matrix instructions of a warp, mma.sync and ldmatrix, with the fragment layouts of the PTX
// ISA. All 32 lanes take part.
#pragma once

#include <cstdint>

#include "tests/sim_cuda/thread.h"

namespace sim {

// mma.sync.m16n8k16.row.col.f32.bf16.bf16.f32: D[16,8] += A[16,16] B[16,8]. With g = lane / 4 and
// t = lane % 4, a lane holds, two bfloat16 to a register, the lower column or row in the lower
// half:
//   a[i]: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next     (4 registers)
//   b[i]: column g, rows 2t + 8 i and the next                       (2 registers)
//   d[i]: row g + 8 (i / 2), column 2t + i % 2                       (4 floats)
void mma_m16n8k16_bf16(float* d, const std::uint32_t* a, const std::uint32_t* b,
                       Place place = Place::here());

// ldmatrix.sync.m8n8.x{tiles}[.trans].b16: lane 8j + r gives the address of row r of tile j, 16
// bytes in shared memory, aligned to 16. Every lane gets of tile j, in registers[j], row g, columns
// 2t and 2t + 1; transposed: column g, rows 2t and 2t + 1.
void ldmatrix(std::uint32_t* registers, const void* row, int tiles, bool transposed,
              Place place = Place::here());

}  // namespace sim
