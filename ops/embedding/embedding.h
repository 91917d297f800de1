// Kernels of embedding.
#pragma once

#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

struct EmbeddingKernels {
  // Throws Error(index) naming the first id outside [0, vocab). `what` begins the message, e.g.
  // "embedding: ids"; an id equal to *ignored passes.
  void (*check_ids)(ConstView ids, std::int64_t vocab, const char* what,
                    const std::int64_t* ignored);
  // y[n] = weight[ids[n]]: [V, C], [N] -> [N, C]; y contiguous
  void (*forward)(ConstView weight, ConstView ids, View y);
  // dweight[ids[n]] += dy[n], or = sum of them with all other rows zero. `order` is scratch, i64
  // [N]. Sums in double and in the order of n: same bits on any number of threads.
  void (*backward)(ConstView dy, ConstView ids, View order, View dweight, bool accumulate);
};

extern const EmbeddingKernels embedding_cpu;
inline constexpr KernelTable<EmbeddingKernels> embedding_kernels{"embedding", &embedding_cpu};

// The dtype of ids and targets. Throws Error(dtype) unless i32 or i64.
void check_id_dtype(DType dtype, const char* what);

}  // namespace duet
