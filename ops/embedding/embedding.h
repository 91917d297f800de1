// Kernels of embedding.
#pragma once

#include "runtime/kernel_table.h"
#include "runtime/view.h"

namespace duet {

struct EmbeddingKernels {
  // Throws Error(index) naming the first id outside [0, vocab). `what` begins the message, e.g.
  // "embedding: ids"; an id equal to *ignored passes. On cuda the error comes later, from
  // cuda::check_error_flag(); until then such ids count as rows of zeros.
  void (*check_ids)(ConstView ids, std::int64_t vocab, const char* what,
                    const std::int64_t* ignored);
  // y[n] = weight[ids[n]]: [V, C], [N] -> [N, C]; y contiguous
  void (*forward)(ConstView weight, ConstView ids, View y);
  // dweight[ids[n]] += dy[n], or = sum of them with all other rows zero. `scratch` is i64
  // [embedding_scratch()]. Sums in double and in the order of n: same bits on any number of
  // threads.
  void (*backward)(ConstView dy, ConstView ids, View scratch, View dweight, bool accumulate);
};

extern const EmbeddingKernels embedding_cpu;
extern const EmbeddingKernels embedding_cuda;
inline constexpr KernelTable<EmbeddingKernels> embedding_kernels{"embedding", &embedding_cpu,
                                                                 DUET_CUDA_TABLE(embedding_cuda)};

// Rows of the sorted ids that one block sums on cuda.
inline constexpr std::int64_t kEmbeddingPart = 64;

// Words of 8 bytes that backward needs for `ids` rows: the order of the rows; on cuda also what two
// ids may leave over in each part of it, `width` doubles each.
inline std::int64_t embedding_scratch(std::int64_t ids, std::int64_t width, Device device) {
  if (device.kernels() != DeviceType::cuda) return ids;
  return ids + 2 * ((ids + kEmbeddingPart - 1) / kEmbeddingPart) * width;
}

// The dtype of ids and targets. Throws Error(dtype) unless i32 or i64.
void check_id_dtype(DType dtype, const char* what);

}  // namespace duet
