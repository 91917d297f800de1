// The fragments of all lanes are put together into whole tiles, and taken apart again.
#include "tests/sim_cuda/warp_matrix.h"

#include <bit>
#include <cstring>

#include "tests/sim_cuda/engine.h"
#include "tests/sim_cuda/shared_memory.h"
#include "tests/sim_cuda/warp.h"

namespace sim {
namespace {

constexpr unsigned kFullMask = 0xffffffffU;

struct MmaLane {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

struct LoadLane {
  std::uint32_t* registers;
  const void* row;
  int tiles;
  bool transposed;
  Place place;
};

// The bfloat16 in the lower (half 0) or upper half of a register.
float half_of(std::uint32_t pair, unsigned half) {
  return std::bit_cast<float>(half == 0 ? pair << 16 : pair & 0xffff0000U);
}

void carry_out_mma(void* const* lanes, unsigned) {
  float a[16][16];
  float b[16][8];
  float d[16][8] = {};
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const auto& in = *static_cast<const MmaLane*>(lanes[lane]);
    const unsigned g = lane / 4;
    const unsigned t = lane % 4;
    for (unsigned half = 0; half < 2; ++half) {
      for (unsigned i = 0; i < 4; ++i)
        a[g + i % 2 * 8][2 * t + half + i / 2 * 8] = half_of(in.a[i], half);
      for (unsigned i = 0; i < 2; ++i) b[2 * t + half + i * 8][g] = half_of(in.b[i], half);
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const auto& out = *static_cast<const MmaLane*>(lanes[lane]);
    for (unsigned i = 0; i < 4; ++i) out.d[i] += d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

// One row of a tile: 8 numbers of 16 bits.
void read_row(const LoadLane& lane, std::uint16_t* row) {
  if (reinterpret_cast<std::uintptr_t>(lane.row) % 16 != 0 || !in_shared_memory(lane.row, 16)) {
    fail("ldmatrix of a row at %p: expected 16 bytes of shared memory, aligned to 16, at %s:%d",
         lane.row, lane.place.file, lane.place.line);
  }
  std::memcpy(row, lane.row, 16);
}

void carry_out_ldmatrix(void* const* lanes, unsigned) {
  const auto lane_of = [&](unsigned lane) -> const LoadLane& {
    return *static_cast<const LoadLane*>(lanes[lane]);
  };
  const bool transposed = lane_of(0).transposed;
  const auto tiles = static_cast<unsigned>(lane_of(0).tiles);
  std::uint32_t results[4]
                       [kWarpLanes];  // the registers may lie where a row was: all are read first
  for (unsigned tile = 0; tile < tiles; ++tile) {
    std::uint16_t values[8][8];
    for (unsigned row = 0; row < 8; ++row) read_row(lane_of(tile * 8 + row), values[row]);
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      const unsigned g = lane / 4;
      const unsigned t = lane % 4 * 2;
      const std::uint32_t low = transposed ? values[t][g] : values[g][t];
      const std::uint32_t high = transposed ? values[t + 1][g] : values[g][t + 1];
      results[tile][lane] = low | high << 16;
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    for (unsigned tile = 0; tile < tiles; ++tile)
      lane_of(lane).registers[tile] = results[tile][lane];
  }
}

}  // namespace

void mma_m16n8k16_bf16(float* d, const std::uint32_t* a, const std::uint32_t* b, Place place) {
  MmaLane lane{d, a, b};
  warp_operation(kFullMask, carry_out_mma, &lane, place);
}

void ldmatrix(std::uint32_t* registers, const void* row, int tiles, bool transposed, Place place) {
  if (tiles != 1 && tiles != 2 && tiles != 4) {
    fail("ldmatrix of %d tiles, expected 1, 2 or 4, at %s:%d", tiles, place.file, place.line);
  }
  LoadLane lane{registers, row, tiles, transposed, place};
  warp_operation(kFullMask, carry_out_ldmatrix, &lane, place);
}

}  // namespace sim
