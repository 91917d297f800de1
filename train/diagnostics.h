// What attention maps and the residual stream look like, per layer and head, on a few sequences.
//
//   const Diagnostics d = diagnose(model, sample_sequences(data.val, block_size, 2));
//   d.effective_rank[layer][head]
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "train/data.h"

namespace duet {

struct Transformer;  // models/transformer.h

using HeadTable = std::vector<std::vector<double>>;  // [layer][head]

// Means over the sequences. With differential scoring a head is a pair of maps; the spectrum is
// that of the difference A1 - lambda A2, which is not row-stochastic.
struct Diagnostics {
  HeadTable effective_rank;  // exp(-sum p ln p), p_i = sigma_i / sum sigma (Roy & Vetterli 2007)
  HeadTable gap, gap_ratio;  // sigma_1 - sigma_2, sigma_2 / sigma_1
  HeadTable entropy;         // of the rows of the (first) map, in nats
  HeadTable entropy_norm;    // each row divided by ln(i + 1), its largest; without row 0
  HeadTable sink;            // mean of A_i0
  HeadTable entropy_2, entropy_norm_2, sink_2;  // of the second map; empty without one
  HeadTable lambda;              // diff: one number a layer; diff_v2: mean over tokens, per head
  std::vector<double> collapse;  // ||X - 1 mean(X)||_F / ||X||_F of the stream behind each block
  std::vector<double> cosine;    // mean cosine of two tokens there

  // Every table under its name in metrics.jsonl, "attn/effective_rank" ...; none that is empty.
  std::vector<std::pair<std::string_view, const HeadTable*>> tables() const;
};

// ids [S, T]: i32. Records no graph; draws from no random stream. One sequence at a time: needs
// less memory than a training step.
Diagnostics diagnose(const Transformer& model, const Tensor& ids);
// The same, but asks after each layer of a sequence, with the share that is done: go_on(0.25).
// Nothing when that said no. Throws Stopped when a stop is requested.
std::optional<Diagnostics> diagnose(const Transformer& model, const Tensor& ids,
                                    const std::function<bool(double)>& go_on);
// lambda of differential scoring alone, as above; empty with softmax.
HeadTable diff_lambdas(const Transformer& model, const Tensor& ids);

// [S, T] of the text, spread evenly, always the same; T = block, or less if the text is shorter.
// Requires at least one token.
Tensor sample_sequences(const TokenSource& part, std::int64_t block, std::int64_t sequences);

// --- The measures, on row-major matrices of doubles

struct Spectrum {
  double effective_rank = 0, gap = 0, gap_ratio = 0;  // 0 for a matrix of zeros
};
Spectrum spectrum_of(const double* map, std::int64_t size);

struct RowMeans {
  double entropy = 0, entropy_norm = 0, sink = 0;
};
RowMeans rows_of(const double* map, std::int64_t size);

struct Spread {
  double collapse = 0, cosine = 1;
};
Spread spread_of(const double* x, std::int64_t tokens, std::int64_t width);

}  // namespace duet
