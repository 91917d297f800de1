// The learning rate of a step: warm-up, then cosine, linear, constant, or warm-up-stable-decay.
#pragma once

#include <cstdint>

#include "train/run_config.h"

namespace duet {

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double max_lr = 1e-3;
  double min_lr = 1e-4;
  std::int64_t warmup = 100;
  std::int64_t total = 2000;
};

Schedule schedule_of(const RunConfig& config);  // min_lr -1 becomes a tenth of learning_rate

// Of step 0, 1, ...: warm-up is max_lr (step + 1) / (warmup + 1), as in nanoGPT; cosine and linear
// fall to min_lr at `total` and stay there; wsd holds max_lr and falls linearly over the last fifth
// of the run. Always in [0, max_lr], also beyond the end.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace duet
