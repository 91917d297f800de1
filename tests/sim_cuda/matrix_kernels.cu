// The kernels of matrix_kernels.h.
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/sim_cuda/async_copy.h"
#include "tests/sim_cuda/device.h"
#include "tests/sim_cuda/matrix_kernels.h"
#include "tests/sim_cuda/warp_matrix.h"

namespace sim {
namespace {

// bfloat16 by its bits; the values of the tests lose nothing.
std::vector<std::uint16_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  return bits;
}

// a: [16,k]. b: [k,8], or transposed [8,k]. Tiles of k = 16, two of them in shared memory: while
// one is multiplied the next is copied.
template <TileBug kBug, bool kByRows>
__global__ void tile_matmul_kernel(const std::uint16_t* a, const std::uint16_t* b, float* c,
                                   int k) {
  constexpr int kPitch = 24;  // 48 bytes a row
  GPU_SHARED(std::uint16_t, as, [2][16][kPitch]);
  GPU_SHARED(std::uint16_t, bs, [2][16][kPitch]);
  const int lane = static_cast<int>(threadIdx.x);
  const auto copy = [&](int stage, int first) {  // 8 numbers a copy
    const int row = lane / 2;
    const int column = lane % 2 * 8;
    async_copy(&as[stage][row][column], a + row * k + first + column, 16, 16);
    if (kByRows && lane < 16) async_copy(&bs[stage][lane][0], b + (first + lane) * 8, 16, 16);
    if (!kByRows && lane < 16) {
      async_copy(&bs[stage][row][column], b + row * k + first + column, 16, 16);
    }
    async_commit();
  };
  float d[4] = {};
  copy(0, 0);
  for (int first = 0; first < k; first += 16) {
    const int stage = first / 16 % 2;
    const bool last = first + 16 == k;
    if (!last) copy(1 - stage, first + 16);
    if (kBug == TileBug::never_waited_for && last) return;
    if (kBug != TileBug::no_wait) async_wait(last && kBug != TileBug::waits_too_little ? 0 : 1);
    __syncthreads();
    std::uint32_t a_registers[4];
    std::uint32_t b_registers[2];
    const int column = lane / 16 * 8 + (kBug == TileBug::misaligned_row ? 1 : 0);
    ldmatrix(a_registers, &as[stage][lane % 16][column], 4, false);
    if (kByRows) {
      ldmatrix(b_registers, &bs[stage][lane % 16][0], 2, true);
    } else {
      ldmatrix(b_registers, &bs[stage][lane % 8][lane / 8 % 2 * 8], 2, false);
    }
    if (kBug == TileBug::half_warp && lane >= 16) {
      __syncthreads();
    } else {
      mma_m16n8k16_bf16(d, a_registers, b_registers);
      __syncthreads();
    }
  }
  async_wait(0);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

template <TileBug kBug>
void run_tile_matmul(const std::uint16_t* a, const std::uint16_t* b, float* c, int k,
                     bool by_rows) {
  auto* kernel = by_rows ? tile_matmul_kernel<kBug, true> : tile_matmul_kernel<kBug, false>;
  run_grid(
      1, 32, 0, [&] { kernel(a, b, c, k); }, "tile_matmul_kernel");
}

}  // namespace

std::vector<float> tile_matmul(const std::vector<float>& a, const std::vector<float>& b, int k,
                               bool by_rows, TileBug bug) {
  std::vector<float> c(16 * 8, NAN);
  std::vector<float> b_as_stored = b;
  for (std::size_t row = 0; row < static_cast<std::size_t>(k) && !by_rows; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      b_as_stored[column * static_cast<std::size_t>(k) + row] = b[row * 8 + column];
    }
  }
  const std::vector<std::uint16_t> a_bits = bits_of(a);
  const std::vector<std::uint16_t> b_bits = bits_of(b_as_stored);
  const auto run = [&]<TileBug kBug>() {
    run_tile_matmul<kBug>(a_bits.data(), b_bits.data(), c.data(), k, by_rows);
  };
  switch (bug) {
    case TileBug::none:
      run.template operator()<TileBug::none>();
      break;
    case TileBug::no_wait:
      run.template operator()<TileBug::no_wait>();
      break;
    case TileBug::waits_too_little:
      run.template operator()<TileBug::waits_too_little>();
      break;
    case TileBug::never_waited_for:
      run.template operator()<TileBug::never_waited_for>();
      break;
    case TileBug::misaligned_row:
      run.template operator()<TileBug::misaligned_row>();
      break;
    case TileBug::half_warp:
      run.template operator()<TileBug::half_warp>();
      break;
  }
  return c;
}

}  // namespace sim
