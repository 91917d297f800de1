// Looks: the diagnostics of a run's evaluations, within a share of the time that the rest of the
// run takes. What a look costs is measured, not assumed; one that would cost more is left out, and
// the training is the same with and without.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "train/diagnostics.h"

namespace duet {

// Tokens of a sequence that a run looks at: the maps of the first ones are those of the whole, and
// the spectrum of a map is cubic in its size.
inline constexpr std::int64_t kLookTokens = 256;

class Looks {
 public:
  // `share` of the time between looks may go into one. `clock` gives monotonic seconds; empty: the
  // steady clock.
  explicit Looks(double share, std::function<double()> clock = {});

  // Nothing when it would take longer than what is left: then the time is saved for a later one.
  std::optional<Diagnostics> look(const Transformer& model, const Tensor& ids);
  double needs() const { return needs_; }  // seconds of a look, as measured; 0: not known yet
  double left() const { return left_; }    // seconds that looks may still take

 private:
  double share_;
  std::function<double()> clock_;
  double since_;  // the last look, or the beginning
  double left_ = 0, needs_ = 0;
};

}  // namespace duet
