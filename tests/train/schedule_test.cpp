// Learning rates: the shape of each schedule, and the bounds that hold for any step (C45).
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace duet::test {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::cosine, ScheduleKind::linear,
                                   ScheduleKind::constant, ScheduleKind::wsd};

TEST(Schedule, StaysWithinItsBoundsForAnyStep) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const ScheduleKind kind : kKinds) {
    for (const std::int64_t warmup : {std::int64_t{0}, std::int64_t{1}, std::int64_t{100}, huge}) {
      for (const std::int64_t total : {std::int64_t{0}, std::int64_t{1}, std::int64_t{200}, huge}) {
        for (const double min_lr : {0.0, 1e-4, 1e-3, 5.0}) {
          const Schedule s{kind, 1e-3, min_lr, warmup, total};
          for (const std::int64_t step :
               {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{99},
                std::int64_t{100}, std::int64_t{199}, std::int64_t{200}, std::int64_t{25'600},
                huge - 1, huge}) {
            const double lr = learning_rate(s, step);
            EXPECT_TRUE(lr >= 0 && lr <= s.max_lr) << step << " of " << total << ": " << lr;
          }
        }
      }
    }
  }
}

TEST(Schedule, WarmsUpAsNanoGptDoes) {
  const Schedule s{ScheduleKind::cosine, 1.0, 0.1, 4, 104};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1.0);
}

TEST(Schedule, Shapes) {
  const auto at = [](ScheduleKind kind, std::int64_t step) {
    return learning_rate({kind, 1.0, 0.1, 0, 100}, step);
  };
  EXPECT_DOUBLE_EQ(at(ScheduleKind::cosine, 0), 1.0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::cosine, 50), 0.55);
  EXPECT_NEAR(at(ScheduleKind::cosine, 25), 0.1 + 0.45 * (1 + 0.70710678118654752), 1e-12);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::cosine, 100), 0.1);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::cosine, 1000), 0.1);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::linear, 25), 0.775);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::linear, 1000), 0.1);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::constant, 99), 1.0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 79), 1.0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 90), 0.55);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 100), 0.1);
}

TEST(Schedule, AnUnsetMinimumIsATenth) {
  RunConfig config;
  config.learning_rate = 6e-4;
  EXPECT_DOUBLE_EQ(schedule_of(config).min_lr, 6e-5);
  config.min_lr = 0;
  EXPECT_DOUBLE_EQ(schedule_of(config).min_lr, 0);
}

}  // namespace
}  // namespace duet::test
