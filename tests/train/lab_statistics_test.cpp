// Statistics of the lab against published tables.
#include <gtest/gtest.h>

#include <cmath>

#include "train/lab/statistics.h"

namespace duet::test {
namespace {

TEST(LabStatisticsTest, StudentQuantilesEqualTheTables) {
  struct Row {
    double probability, freedom, value;
  };
  // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, and R's qt() for more digits.
  for (const Row& row :
       {Row{0.975, 1, 12.706204736}, Row{0.975, 2, 4.302652730}, Row{0.975, 3, 3.182446305},
        Row{0.975, 4, 2.776445105}, Row{0.975, 10, 2.228138852}, Row{0.975, 30, 2.042272456},
        Row{0.975, 1000, 1.962339081}, Row{0.95, 5, 2.015048373}, Row{0.995, 2, 9.924843201},
        Row{0.025, 2, -4.302652730}}) {
    EXPECT_NEAR(student_t_quantile(row.probability, row.freedom), row.value, 1e-8)
        << row.probability << " " << row.freedom;
  }
  EXPECT_EQ(student_t_quantile(0.5, 7), 0);
  EXPECT_NEAR(student_t_cdf(1, 1), 0.75, 1e-14);  // Cauchy: 1/2 + atan(1)/pi
  EXPECT_NEAR(student_t_cdf(-2, 2), 0.0917517095, 1e-9);
}

TEST(LabStatisticsTest, LocationAndSpread) {
  EXPECT_EQ(sample_mean({1, 2, 6}), 3);
  EXPECT_EQ(sample_median({6, 1, 2}), 2);
  EXPECT_EQ(sample_median({4, 1, 2, 9}), 3);
  EXPECT_NEAR(sample_deviation({1, 2, 6}), std::sqrt(7.0), 1e-15);
  EXPECT_TRUE(std::isnan(sample_mean({})));
  EXPECT_TRUE(std::isnan(sample_median({})));
  EXPECT_TRUE(std::isnan(sample_deviation({1})));
}

TEST(LabStatisticsTest, PairedIntervals) {
  // Mean -0.2, deviation 0.1, t(0.975; 2) = 4.30265: half width 0.1 x 4.30265 / sqrt(3).
  const PairedDifference d = paired_difference({-0.1, -0.2, -0.3});
  EXPECT_EQ(d.pairs, 3U);
  EXPECT_NEAR(d.mean, -0.2, 1e-15);
  ASSERT_TRUE(d.half_width.has_value());
  EXPECT_NEAR(*d.half_width, 0.2484137712, 1e-9);
  const PairedDifference one = paired_difference({0.5});
  EXPECT_EQ(one.mean, 0.5);
  EXPECT_FALSE(one.half_width.has_value());
  EXPECT_EQ(paired_difference({}).pairs, 0U);
}

}  // namespace
}  // namespace duet::test
