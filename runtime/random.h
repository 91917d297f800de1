// Random numbers by counter, not by state: Philox4x32-10 (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC11). The same key and index give the same number on every device, after
// every resume, and whatever else was drawn in between.
//
//   RandomKey key{seed, step, layer, kDropoutAttention, micro_step};
//   random_u32(key, i);        // the i-th 32-bit number of this use
#pragma once

#include <array>
#include <cstdint>

#include "runtime/dtype.h"

namespace duet {

class Tensor;

// Who draws. Two different keys give independent streams of 2^34 numbers.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t layer = 0;  // index in the model, or a hash of a parameter's name
  std::uint16_t use = 0;    // RandomUse
  std::uint16_t micro = 0;  // micro-batch within the step
};

enum RandomUse : std::uint16_t {
  kUseInit = 0,
  kUseDataOrder = 1,
  kUseSampling = 2,
  kUseDropoutEmbedding = 8,
  kUseDropoutAttention = 9,
  kUseDropoutMlp = 10,
  kUseDropoutProbs = 11,
  kUseTest = 100,
};

namespace detail {

DUET_HD inline void philox_round(std::uint32_t counter[4], const std::uint32_t key[2]) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
  const std::uint32_t c1 = counter[1];
  const std::uint32_t c3 = counter[3];
  counter[0] = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key[0];
  counter[1] = static_cast<std::uint32_t>(p1);
  counter[2] = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key[1];
  counter[3] = static_cast<std::uint32_t>(p0);
}

// counter becomes the four output words.
DUET_HD inline void philox4x32(std::uint32_t counter[4], std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t key[2] = {key0, key1};
  for (int round = 0; round < 10; ++round) {
    philox_round(counter, key);
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
}

}  // namespace detail

// Numbers 4*block .. 4*block+3 of the key's stream, block < 2^32.
DUET_HD inline void random_block(const RandomKey& key, std::uint32_t block, std::uint32_t out[4]) {
  out[0] = block;
  out[1] = key.step;
  out[2] = key.layer;
  out[3] = static_cast<std::uint32_t>(key.use) << 16 | key.micro;
  detail::philox4x32(out, static_cast<std::uint32_t>(key.seed),
                     static_cast<std::uint32_t>(key.seed >> 32));
}

DUET_HD inline std::uint32_t random_u32(const RandomKey& key, std::uint64_t index) {
  std::uint32_t out[4];
  random_block(key, static_cast<std::uint32_t>(index >> 2), out);
  return out[index & 3U];
}

// In [0, 1): the upper 24 bits, so that every value is exact in float.
DUET_HD inline float to_unit(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Fills an f32 or f64 contiguous tensor (on meta: nothing).
void fill_normal(Tensor& out, const RandomKey& key, double mean, double stddev);  // Box-Muller
void fill_uniform(Tensor& out, const RandomKey& key, double low, double high);    // [low, high)

}  // namespace duet
