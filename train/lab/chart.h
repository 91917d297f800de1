// Charts as inline SVG: no script, no font, no file from elsewhere. Colours are the CSS variables
// --s0 ... of the page, so that a dark page has its own; every line is also named at its end.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace duet {

inline constexpr std::size_t kChartColors = 8;  // then they come again with another dash

struct ChartSeries {
  std::string name;
  std::size_t style = 0;  // which colour and dash
  std::vector<std::pair<double, double>> points;
};

struct LineChart {
  std::string id;     // unique on the page
  std::string label;  // what it shows, for those who do not see it
  std::string x_name, y_name;
  std::vector<ChartSeries> series;
  bool seconds = false;    // x is a duration
  bool zero_line = false;  // y = 0 is shown and marked
  // Share of the x range at the start that does not decide the y range: lines may leave the top.
  double ignored_start = 0;
};
std::string svg(const LineChart& chart);

struct IntervalRow {
  std::string name;
  std::size_t style = 0;
  double center = 0;
  std::optional<double> half_width;
  std::vector<double> dots;  // one per seed
};
// One row per arm: the mean, its interval, the seeds as dots, and a line at zero.
struct IntervalChart {
  std::string label, x_name;
  std::vector<IntervalRow> rows;
};
std::string svg(const IntervalChart& chart);

// Round numbers that divide [low, high] into about `count` parts, low and high not among them.
std::vector<double> ticks(double low, double high, int count);

}  // namespace duet
