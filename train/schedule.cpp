#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace duet {
namespace {

constexpr double kDecayShare = 0.2;  // of the steps after warm-up, for wsd

}  // namespace

Schedule schedule_of(const RunConfig& config) {
  const double max_lr = config.learning_rate;
  return {config.schedule, max_lr, config.min_lr < 0 ? max_lr / 10 : config.min_lr,
          config.warmup_iters, config.max_iters};
}

double learning_rate(const Schedule& s, std::int64_t step) {
  if (step < 0) return 0;
  if (step < s.warmup) {
    return s.max_lr * (static_cast<double>(step) + 1) / (static_cast<double>(s.warmup) + 1);
  }
  const double low = std::clamp(s.min_lr, 0.0, s.max_lr);
  const auto span = static_cast<double>(std::max<std::int64_t>(s.total - s.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step - s.warmup) / span);
  double height = 1;  // 1 at the top, 0 at the bottom
  switch (s.kind) {
    case ScheduleKind::cosine:
      height = 0.5 * (1 + std::cos(std::numbers::pi * progress));
      break;
    case ScheduleKind::linear:
      height = 1 - progress;
      break;
    case ScheduleKind::constant:
      break;
    case ScheduleKind::wsd:
      height = std::min(1.0, (1 - progress) / kDecayShare);
      break;
  }
  return std::clamp(low + height * (s.max_lr - low), 0.0, s.max_lr);
}

}  // namespace duet
