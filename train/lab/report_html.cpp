// The HTML report: one page that needs nothing else, light or dark as the reader has it.
#include <fmt/format.h>

#include <cmath>

#include "runtime/printable.h"
#include "train/html.h"
#include "train/lab/chart.h"
#include "train/lab/report.h"
#include "train/text.h"

namespace duet {
namespace {

constexpr const char* kStyle = R"css(
.clear { font-weight: 700; }
svg { display: block; width: 100%; min-width: 620px; height: auto; padding: 6px 0; }
svg text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--faint); }
svg .name { font-size: 12.5px; fill: var(--text); }
svg .end { font-weight: 600; fill: var(--c); }
.grid { stroke: var(--rule); stroke-width: 1; }
.zero { stroke: var(--faint); stroke-width: 1.2; }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
.line.s0.d0 { stroke-width: 2.6; }
.leader { fill: none; stroke: var(--c); stroke-width: 0.8; opacity: 0.55; stroke-dasharray: none; }
.dots { fill: var(--c); }
.interval path { fill: none; stroke: var(--c); stroke-width: 2.4; }
.interval circle { fill: var(--c); }
.interval .seed { opacity: 0.5; }
.line.d1 { stroke-dasharray: 7 4; } .line.d2 { stroke-dasharray: 2 3; }
)css";

std::string cell(const std::string& text, const char* attributes = "") {
  return fmt::format("<td{}>{}</td>", attributes, html_text(text));
}

std::string head_row(const std::vector<std::string>& titles) {
  std::string out = "<thead><tr>";
  for (const std::string& title : titles) out += concat("<th>", html_text(title), "</th>");
  return out + "</tr></thead>\n";
}

std::string swatch(std::size_t arm, const std::string& name) {
  return fmt::format("<td><span class=\"swatch s{}\"></span>{}</td>", arm % kChartColors,
                     html_text(name));
}

bool is_clear(const PairedDifference& d) {  // the interval leaves out zero
  return d.half_width && std::abs(d.mean) > *d.half_width;
}

std::string arms_table(const LabSummary& s) {
  std::vector<std::string> head = {"arm", "parameters", "runs"};
  for (const LabMetric& m : s.metrics) head.push_back(m.title);
  if (!s.metrics.empty()) head.push_back("difference, " + s.metrics[0].title);
  head.insert(head.end(), {"per step", "relative time"});
  std::string out = "<div class=\"wide\"><table>\n" + head_row(head);
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    const ArmSummary& arm = s.arms[a];
    std::size_t done = 0;
    for (const RunSummary& run : s.runs) done += run.arm == a && run.complete ? 1 : 0;
    out += "<tr>" + swatch(a, arm.arm.name) + cell(format_count(arm.arm.parameters)) +
           cell(fmt::format("{}/{}", done, s.record.seeds.size()));
    for (const SeedMean& m : arm.finals) out += cell(report_spread(m));
    if (!s.metrics.empty()) {
      const PairedDifference& d = arm.differences[0];
      out += a == 0 ? cell("reference")
                    : cell(report_difference(d), is_clear(d) ? " class=\"clear\"" : "");
    }
    out += cell(report_step_time(arm.seconds_per_step)) +
           cell(a == 0 ? "1" : report_ratio(arm.time_ratios)) + "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string runs_table(const LabSummary& s) {
  std::vector<std::string> head = {"run", "state"};
  for (const LabMetric& m : s.metrics) head.push_back(m.title);
  head.insert(head.end(), {"per step", "time"});
  std::string out = "<div class=\"wide\"><table>\n" + head_row(head);
  for (const RunSummary& run : s.runs) {
    out += "<tr>" + swatch(run.arm, run.name) + cell(report_status(run));
    for (const double v : run.finals) out += cell(report_number(v));
    out += cell(report_step_time(run.seconds_per_step)) +
           cell(run.step == 0 ? "-" : format_duration(run.seconds)) + "</tr>\n";
  }
  return out + "</table></div>\n";
}

ChartSeries series(const ArmSummary& arm, std::size_t style, const std::vector<CurvePoint>& curve,
                   bool seconds) {
  ChartSeries out{arm.arm.name, style, {}};
  for (const CurvePoint& p : curve)
    out.points.emplace_back(seconds ? p.seconds : p.tokens, p.value);
  return out;
}

std::string figure(const std::string& title, const std::string& caption, const std::string& chart) {
  return fmt::format("<h2>{}</h2>\n<p class=\"caption\">{}</p>\n<div class=\"wide\">{}</div>\n",
                     html_text(title), html_text(caption), chart);
}

std::string charts(const LabSummary& s) {
  if (s.metrics.empty()) return "";
  const std::string& metric = s.metrics[0].title;
  const std::string& first = s.record.arms[0].name;
  constexpr double kStart = 0.15;
  LineChart tokens{"tokens",
                   "validation " + metric + " against tokens",
                   "tokens trained on",
                   "validation " + metric,
                   {},
                   false,
                   false,
                   kStart};
  LineChart seconds{"seconds",
                    "validation " + metric + " against time",
                    "time of the run",
                    "validation " + metric,
                    {},
                    true,
                    false,
                    kStart};
  LineChart apart{"apart",
                  "difference to " + first + " against tokens",
                  "tokens trained on",
                  "minus " + first,
                  {},
                  false,
                  true,
                  kStart};
  IntervalChart intervals{
      "difference to " + first + " at the end", metric + ", minus " + first, {}};
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    const ArmSummary& arm = s.arms[a];
    tokens.series.push_back(series(arm, a, arm.curve, false));
    seconds.series.push_back(series(arm, a, arm.curve, true));
    if (a == 0 || arm.differences[0].pairs == 0) continue;
    apart.series.push_back(series(arm, a, arm.difference_curve, false));
    intervals.rows.push_back(
        {arm.arm.name, a, arm.differences[0].mean, arm.differences[0].half_width, arm.pairs[0]});
  }
  const std::string better =
      s.metrics[0].higher_is_better ? "Higher is better." : "Lower is better.";
  std::string out;
  if (!intervals.rows.empty()) {
    out += figure("Difference to " + first + " at the end",
                  "Mean over seeds, with its 95 % interval; small dots are the seeds. " + better,
                  svg(intervals));
  }
  out += figure("Against tokens",
                "Mean over seeds. The vertical axis fits what comes after the first 15 % of the "
                "run. " +
                    better,
                svg(tokens));
  if (!apart.series.empty()) {
    out += figure("Difference to " + first + ", against tokens",
                  "Mean over seeds of the paired differences. " + better, svg(apart));
  }
  return out + figure("Against time",
                      "The same curves over the time of the run, evaluations included.",
                      svg(seconds));
}

std::string origin(const LabSummary& s) {
  const ExperimentRecord& record = s.record;
  std::string command, arms, rest;
  for (const std::string& word : record.command_line) {
    command += concat(command.empty() ? "" : " ", printable(word, 4096));
  }
  for (const ExperimentArm& arm : record.arms) {
    arms += fmt::format("\n[[arm]]\nname = {}\n{}", toml_string(arm.name), arm.changes);
  }
  for (const FileIdentity& file : record.files) {
    rest += fmt::format(
        "<li>data <code>{}</code>: {} bytes, XXH3 {}</li>\n", html_text(printable(file.path, 4096)),
        format_count(static_cast<std::int64_t>(file.bytes)), html_text(printable(file.hash)));
  }
  for (const std::string& machine : s.machines) {
    rest += concat("<li>machine: ", html_text(machine), "</li>\n");
  }
  return fmt::format("<h2>How it was made</h2>\n<pre>{}</pre>\n<pre>{}{}</pre>\n<ul>\n{}</ul>\n",
                     html_text(command), html_text(record.common), html_text(arms), rest);
}

}  // namespace

std::string html_report(const LabSummary& s) {
  std::string notes;
  for (const std::string& note : report_notes(s))
    notes += concat("<li>", html_text(note), "</li>\n");
  const std::string title = printable(s.record.directory, 4096);
  return html_page(title, kStyle,
                   fmt::format("<p class=\"lead\">{} arms × {} seeds, {}.</p>\n{}<ul>\n{}</ul>\n"
                               "{}<h2>Runs</h2>\n{}{}",
                               s.record.arms.size(), s.record.seeds.size(), report_progress(s),
                               arms_table(s), notes, charts(s), runs_table(s), origin(s)));
}

}  // namespace duet
