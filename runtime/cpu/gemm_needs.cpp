#include "runtime/cpu/gemm_needs.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/cpu/parallel.h"

namespace duet {
namespace {

// A thread packs blocks, so its copies do not grow with the product: at most 2.5 MB were seen of
// oneDNN 2.6 with 1, 2 and 4 threads. Small products take less: their operands, rounded up to
// whole blocks.
constexpr std::size_t kPackedByThread = std::size_t{2'600} << 10;
constexpr std::size_t kPackedLines = 2'500;  // likewise, where k is small
constexpr std::size_t kOwnOfThread = std::size_t{34} << 10;

struct Counted {
  GemmNeeds needs;
  std::unordered_set<const void*> products;
};

Counted& counted() {
  thread_local Counted all;
  return all;
}

}  // namespace

const GemmNeeds& gemm_needs() { return counted().needs; }
void forget_gemm_needs() { counted() = {}; }

namespace detail {

void count_gemm_needs(const PlannedProduct& p) {
  const auto threads = static_cast<std::size_t>(num_threads());
  std::size_t packed = threads * kOwnOfThread;
  if (p.packs) {
    const std::size_t operands = sizeof(float) * p.k * (p.m + p.n);
    const std::size_t of_thread = std::min(kPackedByThread, sizeof(float) * p.k * kPackedLines);
    packed += std::min(threads * of_thread, operands + operands / 2);
  }
  Counted& all = counted();
  all.needs.packed = std::max(all.needs.packed, packed);
  all.needs.padded = std::max(all.needs.padded, p.padded_bytes);
  if (!all.products.insert(p.identity).second) return;
  all.needs.code += p.code;
  all.needs.code_room += p.code_room;
}

}  // namespace detail
}  // namespace duet
