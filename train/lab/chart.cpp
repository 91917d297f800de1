#include "train/lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/html.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr double kWidth = 760, kLeft = 64, kTop = 12, kBottom = 44, kNames = 138, kMargin = 16;
constexpr double kPlotWidth = kWidth - kLeft - kNames;
constexpr double kNameHeight = 15;  // of a name beside a line's end

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  // Some room on both sides; a single value gets a range.
  void widen(double share) {
    const double room = high > low ? (high - low) * share : std::max(std::abs(high), 1e-6) * 0.1;
    low -= room;
    high += room;
  }
};

// A linear map from values to pixels.
struct Axis {
  double low, high, from, to;
  double at(double v) const { return from + (v - low) / (high - low) * (to - from); }
};

std::string classes(std::size_t style) {
  return fmt::format("s{} d{}", style % kChartColors, style / kChartColors % 3);
}

// Enough digits that two neighbouring ticks differ; thousands and millions by the largest of them.
std::string tick_text(double value, double step, double largest) {
  if (std::abs(value) < step / 2) return "0";
  double unit = 1;
  const char* name = "";
  if (largest >= 1e6) {
    unit = 1e6;
    name = "M";
  } else if (largest >= 1e4) {
    unit = 1e3;
    name = "k";
  }
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step / unit) - 1e-9)));
  return fmt::format("{:.{}f}{}", value / unit, digits, name);
}

struct TimeUnit {
  double seconds;
  const char* name;
};
TimeUnit time_unit(double longest) {
  if (longest >= 2 * 3600) return {3600, "hours"};
  if (longest >= 120) return {60, "minutes"};
  return {1, "seconds"};
}

double step_of(const std::vector<double>& at) { return at.size() > 1 ? at[1] - at[0] : 1; }

double largest(const std::vector<double>& at) {
  return at.empty() ? 0 : std::max(std::abs(at.front()), std::abs(at.back()));
}

std::string open(const std::string& label, double height) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, height,
                     html_text(label));
}

// The ticks of the horizontal axis, their lines, and its name.
std::string vertical_ticks(const Axis& x, double bottom, const std::string& name) {
  std::string out;
  const auto at = ticks(x.low, x.high, 6);
  for (const double v : at) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        x.at(v), kTop, bottom, bottom + 16, tick_text(v, step_of(at), largest(at)));
  }
  return out +
         fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (x.from + x.to) / 2, bottom + 36, html_text(name));
}

// Names at the line ends, moved apart so that none covers another.
std::string end_names(const std::vector<ChartSeries>& series, const Axis& x, const Axis& y) {
  struct Name {
    const ChartSeries* series;
    double end_x, end_y, y;
  };
  std::vector<Name> names;
  for (const ChartSeries& s : series) {
    if (s.points.empty()) continue;
    const double end = std::clamp(y.at(s.points.back().second), y.to, y.from);
    names.push_back({&s, x.at(s.points.back().first), end, end});
  }
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.y < b.y; });
  double lowest = kTop + kNameHeight / 2;
  for (Name& name : names) {
    name.y = std::max(name.y, lowest);
    lowest = name.y + kNameHeight;
  }
  double highest = y.from;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->y = std::min(name->y, highest);
    highest = name->y - kNameHeight;
  }
  std::string out;
  const double text_x = kLeft + kPlotWidth + 22;
  for (const Name& name : names) {
    out += fmt::format(
        "<path class=\"leader {0}\" d=\"M{1:.1f} {2:.1f}L{3:.1f} {4:.1f}\"/>"
        "<text class=\"end {0}\" x=\"{5:.1f}\" y=\"{6:.1f}\">{7}</text>\n",
        classes(name.series->style), name.end_x + 3, name.end_y, text_x - 4, name.y, text_x,
        name.y + 4, html_text(name.series->name));
  }
  return out;
}

Range y_range(const LineChart& chart, const Range& x) {
  Range out;
  for (const ChartSeries& s : chart.series) {
    for (const auto& [px, py] : s.points) {
      if (px >= x.low + (x.high - x.low) * chart.ignored_start) out.add(py);
    }
  }
  if (chart.zero_line) out.add(0);
  out.widen(0.06);
  return out;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  std::vector<double> out;
  if (!(high > low) || !std::isfinite(high - low)) return out;
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= rough) {
      step = power * factor;
      break;
    }
  }
  for (double k = std::ceil(low / step); k * step <= high; ++k) out.push_back(k * step);
  return out;
}

std::string svg(const LineChart& chart) {
  constexpr double kHeight = 380;
  const double bottom = kHeight - kBottom;
  Range range_x;
  for (const ChartSeries& s : chart.series) {
    for (const auto& [px, py] : s.points) range_x.add(px);
  }
  if (range_x.empty()) return "<p>Nothing to draw yet.</p>\n";
  const Range range_y = y_range(chart, range_x);
  if (range_x.low == range_x.high) range_x.widen(0);
  const TimeUnit unit = chart.seconds ? time_unit(range_x.high) : TimeUnit{1, ""};
  const Axis x{range_x.low / unit.seconds, range_x.high / unit.seconds, kLeft, kLeft + kPlotWidth};
  const Axis y{range_y.low, range_y.high, bottom, kTop};

  std::string out = open(chart.label, kHeight);
  const auto at = ticks(y.low, y.high, 6);
  for (const double v : at) {
    const bool zero = chart.zero_line && std::abs(v) < step_of(at) / 2;
    out += fmt::format(
        "<line class=\"{0}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3:.1f}\" y2=\"{3:.1f}\"/>"
        "<text class=\"tick\" x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6}</text>\n",
        zero ? "zero" : "grid", kLeft, kLeft + kPlotWidth, y.at(v), kLeft - 8, y.at(v) + 4,
        tick_text(v, step_of(at), largest(at)));
  }
  out += vertical_ticks(x, bottom, chart.seconds ? chart.x_name + ", " + unit.name : chart.x_name);
  out += fmt::format(
      "<text class=\"name\" transform=\"translate(14 {:.1f}) rotate(-90)\" "
      "text-anchor=\"middle\">{}</text>\n",
      (kTop + bottom) / 2, html_text(chart.y_name));
  out += fmt::format(
      "<clipPath id=\"{0}\"><rect x=\"{1}\" y=\"{2}\" width=\"{3}\" height=\"{4}\"/></clipPath>\n"
      "<g clip-path=\"url(#{0})\">\n",
      html_text(chart.id), kLeft, kTop, kPlotWidth + 4, bottom - kTop);
  for (const ChartSeries& s : chart.series) {
    std::string path, dots;
    for (const auto& [px, py] : s.points) {
      const double cx = x.at(px / unit.seconds), cy = y.at(py);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", cx, cy);
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\"><title>{}: {} at {}{}"
          "</title></circle>",
          cx, cy, html_text(s.name), fmt::format("{:.5g}", py),
          chart.seconds ? fmt::format("{:.3g} ", px / unit.seconds) : format_short(px) + " ",
          chart.seconds ? unit.name : "tokens");
    }
    if (path.empty()) continue;
    out += fmt::format("<path class=\"line {0}\" d=\"{1}\"/><g class=\"dots {0}\">{2}</g>\n",
                       classes(s.style), path, dots);
  }
  return out + "</g>\n" + end_names(chart.series, x, y) + "</svg>\n";
}

std::string svg(const IntervalChart& chart) {
  constexpr double kRow = 30;
  const double bottom = kTop + kRow * static_cast<double>(chart.rows.size());
  Range range;
  range.add(0);
  for (const IntervalRow& row : chart.rows) {
    range.add(row.center - row.half_width.value_or(0));
    range.add(row.center + row.half_width.value_or(0));
    for (const double dot : row.dots) range.add(dot);
  }
  range.widen(0.06);
  const Axis x{range.low, range.high, kNames, kWidth - kMargin};
  std::string out = open(chart.label, bottom + kBottom);
  out += vertical_ticks(x, bottom, chart.x_name);
  out += fmt::format("<line class=\"zero\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n",
                     x.at(0), kTop, bottom);
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const IntervalRow& row = chart.rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    out += fmt::format("<g class=\"interval {}\">", classes(row.style));
    if (row.half_width) {
      const double left = x.at(row.center - *row.half_width);
      const double right = x.at(row.center + *row.half_width);
      out += fmt::format(
          "<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {2:.1f}M{0:.1f} {3:.1f}L{0:.1f} {4:.1f}"
          "M{1:.1f} {3:.1f}L{1:.1f} {4:.1f}\"><title>{5}: {6:+.4g} ± {7:.2g}</title></path>",
          left, right, y, y - 5, y + 5, html_text(row.name), row.center, *row.half_width);
    }
    for (const double dot : row.dots) {
      out += fmt::format("<circle class=\"seed\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", x.at(dot),
                         y + 9);
    }
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/></g>", x.at(row.center), y);
    out +=
        fmt::format("<text class=\"end {}\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                    classes(row.style), kNames - 12, y + 4, html_text(row.name));
  }
  return out + "</svg>\n";
}

}  // namespace duet
