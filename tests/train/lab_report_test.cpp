// Reports of the lab on logs written by hand: numbers, missing runs, torn lines, hostile names.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/train/train_support.h"
#include "train/html.h"
#include "train/lab/chart.h"
#include "train/lab/report.h"

namespace duet::test {
namespace {

namespace fs = std::filesystem;

class LabReportTest : public testing::Test {
 protected:
  LabReportTest() {
    record_.directory = dir_.file("lab");
    record_.seeds = {1, 2, 3};
    record_.arms = {{"none", "", 1000, 20}, {"a<b", "coupling = \"euler\"\n", 1100, 20}};
    record_.common = "data = \"x\"\n";
    record_.command_line = {"duet", "lab", "compare", "<e>.toml"};
    record_.files = {{"x", 12345, "abc"}};
  }
  // Evaluations at steps 0, 10 and 20 of 64 tokens each; `final` is the last bits per byte.
  void log(std::size_t arm, std::int64_t seed, double final, double step_ms,
           const std::string& tail = "") const {
    const std::string directory = run_directory(record_, arm, seed);
    fs::create_directories(directory);
    std::string text = "{\"step\":0,\"tokens\":0,\"time\":0.1,\"val/loss\":5.5,\"val/bpb\":8.0}\n";
    for (const int step : {1, 10, 20}) {
      text += concat("{\"step\":", step, ",\"tokens\":", step * 64, ",\"time\":", step,
                     ",\"train/loss\":3.5,\"train/tok_per_sec\":", 64 / (step_ms * 1e-3));
      if (step > 1) {
        text += concat(",\"val/loss\":", step == 20 ? final / 2 : 3,
                       ",\"val/bpb\":", step == 20 ? final : 4);
      }
      text += "}\n";
    }
    write_bytes(directory + "/metrics.jsonl", text + tail);
  }

  TempDirectory dir_;
  ExperimentRecord record_;
};

TEST_F(LabReportTest, NumbersByHand) {
  const double none[] = {2.0, 2.1, 2.2}, other[] = {1.9, 1.9, 1.9};
  for (int s = 0; s < 3; ++s) {
    log(0, s + 1, none[s], 10);
    log(1, s + 1, other[s], 12 + s, s == 2 ? "{\"step\":21,\"tok" : "");  // torn
  }
  const LabSummary summary = summarize(record_);
  EXPECT_EQ(summary.complete_runs(), 6U);
  ASSERT_EQ(summary.metrics.size(), 2U);
  EXPECT_EQ(summary.metrics[0].key, "val/bpb");
  const ArmSummary& arm = summary.arms[1];
  EXPECT_NEAR(summary.arms[0].finals[0].mean, 2.1, 1e-12);
  EXPECT_NEAR(summary.arms[0].finals[0].deviation, 0.1, 1e-12);
  EXPECT_NEAR(arm.finals[0].mean, 1.9, 1e-12);
  EXPECT_EQ(arm.differences[0].pairs, 3U);
  EXPECT_NEAR(arm.differences[0].mean, -0.2, 1e-12);
  EXPECT_NEAR(arm.differences[0].half_width.value(), 0.2484137712, 1e-9);
  EXPECT_NEAR(arm.seconds_per_step, 13e-3, 1e-7);
  EXPECT_NEAR(sample_mean(arm.time_ratios), 1.3, 1e-5);
  ASSERT_EQ(arm.curve.size(), 3U);
  EXPECT_EQ(arm.curve[1].tokens, 640);
  EXPECT_EQ(arm.curve[1].seconds, 10);
  EXPECT_NEAR(arm.difference_curve[2].value, -0.2, 1e-12);
  EXPECT_TRUE(summary.arms[0].difference_curve.empty());

  const std::string markdown = markdown_report(summary);
  EXPECT_NE(markdown.find("| none | 1,000 | 3/3 | 2.1000 ± 0.1000 | 1.0500 ± 0.0500 | (reference) "
                          "| 10.0 ms | 1 |\n"),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("| a<b | 1,100 | 3/3 | 1.9000 ± 0.0000 | 0.9500 ± 0.0000 | -0.2000 "
                          "[-0.4484, +0.0484] | 13.0 ms | 1.30 (1.20 to 1.40) |\n"),
            std::string::npos)
      << markdown;

  const std::string html = html_report(summary);
  for (const char* word : {"http:", "https:", "src=", "<script", "@import", "url(h"}) {
    EXPECT_EQ(html.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(html.find("a<b"), std::string::npos);
  EXPECT_NE(html.find("a&lt;b"), std::string::npos);
  EXPECT_NE(html.find("-0.2000 [-0.4484, +0.0484]"), std::string::npos);
  std::size_t charts = 0;
  for (std::size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 4U);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST_F(LabReportTest, UnfinishedRunsAreSaidAndLeftOut) {
  log(0, 1, 2.0, 10);
  log(1, 1, 1.5, 10);
  log(0, 2, 2.5, 10);
  fs::create_directories(run_directory(record_, 1, 2));
  write_bytes(run_directory(record_, 1, 2) + "/metrics.jsonl",
              "{\"step\":10,\"tokens\":640,\"time\":9,\"val/bpb\":4.0,\"val/loss\":3.0}\n");
  const LabSummary summary = write_reports(record_);
  EXPECT_EQ(summary.complete_runs(), 3U);
  EXPECT_EQ(summary.arms[0].finals[0].n, 2U);
  EXPECT_EQ(summary.arms[1].differences[0].pairs, 1U);
  EXPECT_FALSE(summary.arms[1].differences[0].half_width.has_value());
  const std::string markdown = markdown_report(summary);
  for (const char* word : {"-0.5000 (1 pair)", "One pair of runs gives no interval",
                           "Not finished: 3 of 6 runs are done", "| a<b-seed2 | step 10 of 20 |",
                           "| none-seed3 | not started |"}) {
    EXPECT_NE(markdown.find(word), std::string::npos) << word << "\n" << markdown;
  }
  EXPECT_TRUE(fs::exists(dir_.file("lab/report.md")));
  EXPECT_TRUE(fs::exists(dir_.file("lab/report.html")));
}

TEST_F(LabReportTest, NothingYetAndNothingFinite) {
  fs::create_directories(record_.directory);
  const LabSummary none = write_reports(record_);
  EXPECT_EQ(none.complete_runs(), 0U);
  EXPECT_EQ(html_report(none).find("nan"), std::string::npos);
  log(0, 1, 2.0, 10);
  const std::string directory = run_directory(record_, 1, 1);
  fs::create_directories(directory);
  write_bytes(directory + "/metrics.jsonl",
              "{\"step\":20,\"tokens\":640,\"time\":9,\"val/bpb\":null,\"val/loss\":null}\n");
  const LabSummary summary = summarize(record_);
  EXPECT_EQ(summary.arms[1].finals[0].n, 0U);
  EXPECT_EQ(summary.arms[1].differences[0].pairs, 0U);
  EXPECT_NE(markdown_report(summary).find("not a finite number: a<b-seed1."), std::string::npos);
  EXPECT_EQ(html_report(summary).find("nan"), std::string::npos);
}

TEST(HtmlTest, NoTextReordersThePageAroundIt) {
  EXPECT_EQ(html_text("a\u202e<b>\n"), "a\\xe2\\x80\\xae&lt;b&gt;\n");
}

TEST(LabChartTest, TicksAreRoundAndInside) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(0.3, 1.02, 3), (std::vector<double>{0.5, 1.0}));
  for (const double high : {1e-9, 0.07, 3.0, 12345.0, 1e12}) {
    const auto at = ticks(-high / 3, high, 6);
    EXPECT_GE(at.size(), 3U) << high;
    EXPECT_LE(at.size(), 8U) << high;
    EXPECT_GE(at.front(), -high / 3);
    EXPECT_LE(at.back(), high);
  }
  EXPECT_TRUE(ticks(1, 1, 5).empty());
  EXPECT_TRUE(ticks(0, std::nan(""), 5).empty());
}

TEST(LabChartTest, NamesAtTheEndsKeepApart) {
  LineChart chart;
  chart.id = "c";
  for (std::size_t i = 0; i < 9; ++i) {
    chart.series.push_back({concat("arm", i), i, {{0, 1}, {1, 2 + 1e-6 * static_cast<double>(i)}}});
  }
  const std::string text = svg(chart);
  double last = -100;
  int names = 0;
  for (std::size_t at = 0; (at = text.find("<text class=\"end ", at)) != std::string::npos; ++at) {
    const std::size_t y = text.find(" y=\"", at) + 4;
    const double here = std::stod(text.substr(y));
    EXPECT_GE(here - last, 14.9);
    last = here;
    ++names;
  }
  EXPECT_EQ(names, 9);
  EXPECT_NE(text.find("class=\"line s0 d1\""), std::string::npos);  // the ninth has a dash
}

}  // namespace
}  // namespace duet::test
