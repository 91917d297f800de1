// The HTML report: one page that needs nothing else, light or dark as the reader has it.
#include <fmt/format.h>

#include <cmath>

#include "runtime/printable.h"
#include "train/lab/chart.h"
#include "train/lab/report.h"
#include "train/text.h"

namespace duet {
namespace {

// Okabe and Ito's colours, which people with any colour vision tell apart; the first arm has the
// colour of the text. Yellow is darkened on the light page.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #ffffff; --text: #1c1e21; --faint: #5f6670; --rule: #dfe3e8;
  --panel: #f6f7f9; --s0: #1c1e21; --s1: #0072b2; --s2: #d55e00; --s3: #00825f; --s4: #b0528a;
  --s5: #2f8fd0; --s6: #b97700; --s7: #7d7200; }
@media (prefers-color-scheme: dark) { :root { --page: #14161a; --text: #e7e9ec; --faint: #a0a7b1;
  --rule: #30353c; --panel: #1c1f25; --s0: #f2f3f5; --s1: #4da3e0; --s2: #ff8a3d; --s3: #2ec79a;
  --s4: #e39ac6; --s5: #8fd0f7; --s6: #f0b432; --s7: #f0e442; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 8px; }
p, ul { margin: 6px 0 10px; max-width: 78ch; }
ul { padding-left: 20px; color: var(--faint); }
.lead, .caption { color: var(--faint); }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap; border-top: 1px solid var(--rule); }
tr:first-child th { border-top: 0; background: var(--panel); font-weight: 600; vertical-align: bottom; }
tr:first-child th:not(:first-child) { white-space: normal; min-width: 74px; }
th:first-child, td:first-child, .text { text-align: left; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 8px; }
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
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.swatch { background: var(--c); }
pre { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px;
  overflow-x: auto; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; }
)css";

std::string cell(const std::string& text, const char* attributes = "") {
  return fmt::format("<td{}>{}</td>", attributes, html_text(text));
}

std::string head_row(const std::vector<std::string>& titles) {
  std::string out = "<tr>";
  for (const std::string& title : titles) out += concat("<th>", html_text(title), "</th>");
  return out + "</tr>\n";
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
  const std::string title = html_text(printable(s.record.directory, 4096));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n"
      "<p class=\"lead\">{2} arms × {3} seeds, {4} of {5} runs done.</p>\n{6}<ul>\n{7}</ul>\n"
      "{8}<h2>Runs</h2>\n{9}{10}</main>\n</body>\n</html>\n",
      title, kStyle, s.record.arms.size(), s.record.seeds.size(), s.complete_runs(), s.runs.size(),
      arms_table(s), notes, charts(s), runs_table(s), origin(s));
}

}  // namespace duet
