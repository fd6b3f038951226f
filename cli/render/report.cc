#include "cli/render/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render/fold_events.h"
#include "cli/render/format.h"
#include "cli/render/summary_text.h"
#include "cli/render/test_metrics.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr std::size_t kMaxMembers = 100;
constexpr std::size_t kMaxEvents = 500;

// For element content and quoted attribute values.
std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default: {
        const auto code = static_cast<unsigned char>(c);
        escaped += (code < 0x20 && c != '\n' && c != '\t') || code == 0x7f ? ' ' : c;
      }
    }
  }
  return escaped;
}

// What a run can have and a drawing can show: leaves out what is no number and what would lose the axes their
// precision.
bool Drawable(double value) { return std::abs(value) < 1e15; }

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // not drawn; a dash as text

// A coordinate of a drawing.
std::string At(double value) { return absl::StrFormat("%.1f", value); }

// ---- axes

struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;
  double step = 1;
};

// The least 1, 2 or 5 times a power of ten that is at least `least`.
double NiceStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

void SetTicks(Axis* axis) {
  for (double i = std::ceil(axis->low / axis->step - 1e-6); i * axis->step <= axis->high + 1e-6 * axis->step; ++i) {
    axis->ticks.push_back(i * axis->step + 0.0);  // without the sign of a negative zero
  }
}

// Covers `low`..`high` from tick to tick.
Axis ValueAxis(double low, double high, int ticks) {
  if (!(high - low > std::abs(high) * 1e-9)) high = low + std::max(std::abs(low), 1.0) * 0.1;
  Axis axis;
  axis.step = NiceStep((high - low) / ticks);
  axis.low = std::floor(low / axis.step + 1e-9) * axis.step;
  axis.high = std::ceil(high / axis.step - 1e-9) * axis.step;
  SetTicks(&axis);
  return axis;
}

// From the start of the run to its end, with ticks at whole minutes and hours where it is long.
Axis TimeAxis(double end, int ticks) {
  Axis axis;
  axis.high = end;
  axis.step = NiceStep(end / ticks);
  for (const double step : {10., 15., 30., 60., 120., 300., 600., 900., 1800., 3600., 7200., 14400., 28800., 86400.}) {
    if (end / ticks > 10 && step >= end / ticks) {
      axis.step = step;
      break;
    }
  }
  SetTicks(&axis);
  return axis;
}

std::string ValueLabel(double value, double step) {
  if (step < 1) return FormatDecimal(value, std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6));
  std::string label = FormatCount(value);
  // 5.00k -> 5k, 2.50k -> 2.5k
  const std::size_t point = label.find('.');
  if (point == std::string::npos) return label;
  const std::size_t unit = label.find_first_not_of("0123456789", point + 1);
  std::size_t end = unit == std::string::npos ? label.size() : unit;
  while (label[end - 1] == '0') label.erase(--end, 1);
  if (end == point + 1) label.erase(point, 1);
  return label;
}

std::string TimeLabel(double seconds, double step) {
  if (step < 1)
    return FormatDecimal(seconds, std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6)) + "s";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return absl::StrCat(whole, "s");
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole % 3600 / 60, whole % 60);
}

// ---- the run's shape

// The finite end of everything that has a time; never 0, so that it can be divided by.
double EndOfRun(const RunHistory& history) {
  double end = 0;
  const auto see = [&](double seconds) {
    if (Drawable(seconds)) end = std::max(end, seconds);
  };
  see(history.summary.total_seconds);
  for (const CurvePoint& point : history.curve) see(point.seconds);
  for (const double seconds : history.evaluation_seconds) see(seconds);
  for (const TimelineSpan& span : history.spans) see(std::max(span.start_seconds, span.end_seconds.value_or(0)));
  for (const TimelineEvent& event : history.events) see(event.seconds);
  return end > 0 ? end : 1;
}

bool IsFailure(const TimelineSpan& span) {
  return span.end_seconds.has_value() && !span.end_cause.empty() && !absl::StartsWith(span.end_cause, "finished") &&
         !absl::StartsWith(span.end_cause, "stopped");
}

// ---- charts

struct Point {
  double x = 0;
  double y = 0;
  std::string title;  // shown on hovering over its mark; empty: it has none, unless it is alone
};

struct Chart {
  std::string title;
  std::string unit;
  std::string colour;  // class of the line and its marks
  std::vector<Point> points;
  bool from_zero = false;
  std::string empty;  // what to say when there is nothing to draw
};

constexpr double kWidth = 560;
constexpr double kHeight = 250;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 40;

// Vertical lines at the failures, so that the curves show what a failure did.
std::string FailureLines(const RunHistory& history, double left, double width, double end, double top, double bottom) {
  std::string svg;
  for (const TimelineSpan& span : history.spans) {
    if (!IsFailure(span) || !Drawable(*span.end_seconds)) continue;
    const std::string x = At(left + std::clamp(*span.end_seconds / end, 0.0, 1.0) * width);
    absl::StrAppend(&svg, "<line class=\"fault\" x1=\"", x, "\" y1=\"", At(top), "\" x2=\"", x, "\" y2=\"", At(bottom),
                    "\"><title>", Escape(absl::StrCat(span.name, ": ", span.end_cause)), "</title></line>");
  }
  return svg;
}

std::string TimeTicks(const Axis& axis, double left, double width, double top, double bottom) {
  std::string svg;
  for (const double tick : axis.ticks) {
    const std::string x = At(left + tick / axis.high * width);
    absl::StrAppend(&svg, "<line class=\"grid\" x1=\"", x, "\" y1=\"", At(top), "\" x2=\"", x, "\" y2=\"", At(bottom),
                    "\"/><text x=\"", x, "\" y=\"", At(bottom + 16), "\" text-anchor=\"middle\">",
                    TimeLabel(tick, axis.step), "</text>");
  }
  return svg;
}

std::string RenderChart(const RunHistory& history, const Chart& chart, double end) {
  std::string html = absl::StrCat("<figure class=\"card\"><figcaption>", Escape(chart.title), "</figcaption>");
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::size_t drawable = 0;
  for (const Point& point : chart.points) {
    if (!Drawable(point.x) || !Drawable(point.y)) continue;
    ++drawable;
    low = std::min(low, point.y);
    high = std::max(high, point.y);
  }
  if (drawable == 0) return absl::StrCat(html, "<p class=\"none\">", Escape(chart.empty), "</p></figure>");
  if (chart.from_zero) low = std::min(low, 0.0);
  const Axis y_axis = ValueAxis(low, high, 5);
  const Axis x_axis = TimeAxis(end, 6);
  const double width = kWidth - kLeft - kRight;
  const double bottom = kHeight - kBottom;
  const auto x_of = [&](double x) { return kLeft + std::clamp(x / end, 0.0, 1.0) * width; };
  const auto y_of = [&](double y) { return bottom - (y - y_axis.low) / (y_axis.high - y_axis.low) * (bottom - kTop); };

  absl::StrAppend(&html, "<svg viewBox=\"0 0 ", At(kWidth), " ", At(kHeight), "\" role=\"img\" aria-label=\"",
                  Escape(chart.title), "\">", TimeTicks(x_axis, kLeft, width, kTop, bottom));
  for (const double tick : y_axis.ticks) {
    const std::string y = At(y_of(tick));
    absl::StrAppend(&html, "<line class=\"grid\" x1=\"", At(kLeft), "\" y1=\"", y, "\" x2=\"", At(kLeft + width),
                    "\" y2=\"", y, "\"/><text x=\"", At(kLeft - 7), "\" y=\"", At(y_of(tick) + 4),
                    "\" text-anchor=\"end\">", ValueLabel(tick, y_axis.step), "</text>");
  }
  absl::StrAppend(&html, "<line class=\"axis\" x1=\"", At(kLeft), "\" y1=\"", At(bottom), "\" x2=\"", At(kLeft + width),
                  "\" y2=\"", At(bottom), "\"/><text x=\"", At(kLeft + width / 2), "\" y=\"", At(kHeight - 4),
                  "\" text-anchor=\"middle\">time since start</text><text transform=\"translate(12 ",
                  At((kTop + bottom) / 2), ") rotate(-90)\" text-anchor=\"middle\">", Escape(chart.unit), "</text>");
  absl::StrAppend(&html, FailureLines(history, kLeft, width, end, kTop, bottom));

  // A point that is no number breaks the line.
  std::string line;
  std::string marks;
  bool pen_down = false;
  for (const Point& point : chart.points) {
    if (!Drawable(point.x) || !Drawable(point.y)) {
      pen_down = false;
      continue;
    }
    const std::string x = At(x_of(point.x));
    const std::string y = At(y_of(point.y));
    absl::StrAppend(&line, pen_down ? "L" : "M", x, " ", y);
    if (!pen_down) absl::StrAppend(&line, "h0");  // the round end of the stroke shows a point without neighbours
    pen_down = true;
    if (point.title.empty() && drawable > 1) continue;
    absl::StrAppend(&marks, "<circle class=\"", chart.colour, "\" cx=\"", x, "\" cy=\"", y, "\" r=\"3.5\"><title>",
                    Escape(point.title), "</title></circle>");
  }
  return absl::StrCat(html, "<path class=\"", chart.colour, "\" d=\"", line, "\"/>", marks, "</svg></figure>");
}

// One for each metric.
std::vector<Chart> TestCharts(const RunHistory& history) {
  std::vector<Chart> charts;
  const auto chart_of = [&charts](const std::string& metric) -> Chart& {
    const std::string label = MetricLabel(metric);
    const auto known =
        std::find_if(charts.begin(), charts.end(), [&label](const Chart& chart) { return chart.unit == label; });
    if (known != charts.end()) return *known;
    return charts.emplace_back(Chart{"Test " + label, label, "c2", {}, false, "The test set was not evaluated."});
  };
  for (std::size_t i = 0; i < history.evaluations.size() && i < history.evaluation_seconds.size(); ++i) {
    const v1::Evaluation& evaluation = history.evaluations[i];
    const std::vector<TestMetric> metrics = MetricsOf(evaluation);
    const std::string title = absl::StrCat("after epoch ", evaluation.dataset_epoch(), ": ", MetricsText(metrics),
                                           ", loss ", FormatDecimal(evaluation.loss(), 4));
    for (const TestMetric& metric : metrics) {
      chart_of(metric.name).points.push_back({history.evaluation_seconds[i], metric.value, title});
    }
  }
  if (!charts.empty()) return charts;
  for (const TestMetric& metric : ExpectedMetrics(history.job)) chart_of(metric.name);
  return charts;
}

std::string RenderCharts(const RunHistory& history, double end) {
  Chart loss{"Training loss", "loss", "c1", {}, true, "No loss was reported."};
  Chart rate{"Throughput", "samples/s", "c3", {}, true, "No rate was reported."};
  Chart progress{"Progress", "epochs", "c1", {}, true, "No update was applied."};
  for (const CurvePoint& point : history.curve) {
    if (point.updates == 0) continue;
    loss.points.push_back({point.seconds, point.loss.value_or(kUnknown), ""});
    rate.points.push_back({point.seconds, point.samples_per_second.value_or(kUnknown), ""});
    progress.points.push_back({point.seconds, point.epochs, ""});
  }
  std::string html = absl::StrCat("<section class=\"charts\">", RenderChart(history, loss, end));
  for (const Chart& chart : TestCharts(history)) absl::StrAppend(&html, RenderChart(history, chart, end));
  return absl::StrCat(html, RenderChart(history, rate, end), RenderChart(history, progress, end), "</section>");
}

// ---- timeline

std::string RenderTimeline(const RunHistory& history, double end) {
  std::string html = "<section class=\"card\"><h2>Members</h2>";
  std::vector<std::string> names;  // in the order of their first start
  std::map<std::string, std::vector<const TimelineSpan*>> spans;
  for (const TimelineSpan& span : history.spans) {
    std::vector<const TimelineSpan*>& of_name = spans[span.name];
    if (of_name.empty()) names.push_back(span.name);
    of_name.push_back(&span);
  }
  if (names.empty()) return html + "<p class=\"none\">No process was started.</p></section>";
  const std::size_t shown = std::min(names.size(), kMaxMembers);

  constexpr double kFull = 1140;
  constexpr double kNames = 150;
  constexpr double kRow = 26;
  const double width = kFull - kNames - 20;
  const double bottom = 6 + kRow * static_cast<double>(shown);
  const Axis axis = TimeAxis(end, 12);
  absl::StrAppend(&html, "<div class=\"scroll\"><svg class=\"gantt\" viewBox=\"0 0 ", At(kFull), " ", At(bottom + 24),
                  "\" role=\"img\" aria-label=\"Timeline of the members\">", TimeTicks(axis, kNames, width, 0, bottom));
  std::string marks;  // above the bars
  for (std::size_t i = 0; i < shown; ++i) {
    const double top = 4 + kRow * static_cast<double>(i);
    absl::StrAppend(&html, "<text x=\"", At(kNames - 10), "\" y=\"", At(top + 15), "\" text-anchor=\"end\">",
                    Escape(FitColumns(CleanText(names[i]), 22)), "</text>");
    for (const TimelineSpan* span : spans[names[i]]) {
      const double until = span->end_seconds.value_or(end);
      if (!Drawable(span->start_seconds) || !Drawable(until)) continue;
      const double x1 = kNames + std::clamp(span->start_seconds / end, 0.0, 1.0) * width;
      const double x2 = std::max(x1 + 1.5, kNames + std::clamp(until / end, 0.0, 1.0) * width);
      const std::string title = Escape(absl::StrCat(span->name, ", incarnation ", span->incarnation, ": ",
                                                    FormatDuration(span->start_seconds), " to ", FormatDuration(until),
                                                    span->end_cause.empty() ? "" : ", " + span->end_cause));
      absl::StrAppend(&html, "<rect class=\"", span->incarnation % 2 == 1 ? "bar" : "bar again", "\" x=\"", At(x1),
                      "\" y=\"", At(top), "\" width=\"", At(x2 - x1), "\" height=\"", At(kRow - 8),
                      "\" rx=\"3\"><title>", title, "</title></rect>");
      if (x2 - x1 > 26) {
        absl::StrAppend(&html, "<text class=\"on\" x=\"", At(x1 + 7), "\" y=\"", At(top + 13.5), "\">#",
                        span->incarnation, "</text>");
      }
      if (!IsFailure(*span)) continue;
      const std::string y = At(top + (kRow - 8) / 2);
      absl::StrAppend(&marks, "<g class=\"mark\" transform=\"translate(", At(x2), " ", y,
                      ")\"><circle r=\"7\"/><path d=\"M-3 -3L3 3M3 -3L-3 3\"/><title>", title, "</title></g>");
    }
  }
  absl::StrAppend(&html, marks, "</svg></div><p class=\"note\">A bar is a process, #1 its first incarnation");
  absl::StrAppend(&html,
                  "; <span class=\"bad\">&#10005;</span> marks a failure, and so do the dashed lines in the charts.");
  if (shown < names.size()) absl::StrAppend(&html, " ", names.size() - shown, " more members are not shown.");
  return html + "</p></section>";
}

// ---- figures, events, manifest

std::string RenderTile(const std::string& name, const std::string& value) {
  return absl::StrCat("<div class=\"tile\"><b>", Escape(value), "</b><span>", Escape(name), "</span></div>");
}

std::string RenderHead(const RunHistory& history) {
  const RunSummary& summary = history.summary;
  const std::string phase = summary.phase.empty() ? "Unfinished" : summary.phase;
  const char* tone = phase == "Succeeded" ? "good" : phase == "Failed" ? "bad" : "fair";
  std::string html = absl::StrCat("<header><h1>", Escape(summary.job), " <span class=\"badge ", tone, "\">",
                                  Escape(phase), "</span></h1>");
  if (!summary.message.empty()) absl::StrAppend(&html, "<p>", Escape(summary.message), "</p>");
  absl::StrAppend(&html, "</header><section class=\"tiles\">");
  const bool evaluated = !summary.test_metrics.empty();
  for (const TestMetric& metric : evaluated ? summary.test_metrics : ExpectedMetrics(history.job)) {
    absl::StrAppend(&html, RenderTile("test " + MetricLabel(metric.name), FormatDecimal(metric.value, 4)));
  }
  absl::StrAppend(
      &html, RenderTile("test loss", summary.test_loss ? FormatDecimal(*summary.test_loss, 4) : "-"),
      RenderTile("epochs", FormatDecimal(summary.epochs, summary.epochs == std::floor(summary.epochs) ? 0 : 2)),
      RenderTile("samples/s", FormatCount(summary.samples_per_second.value_or(kUnknown))),
      RenderTile("first update after",
                 summary.first_update_seconds > 0 ? FormatDuration(summary.first_update_seconds) : "-"),
      RenderTile("total", FormatDuration(summary.total_seconds)));
  absl::StrAppend(&html, RenderTile("restarts", absl::StrCat(summary.restarts)),
                  RenderTile("generation", absl::StrCat(summary.generation)),
                  RenderTile("lost updates", absl::StrCat(summary.lost_updates)), "</section>");
  return html;
}

std::string RenderLedger(const RunSummary& summary) {
  std::string html = "<section class=\"card\"><h2>Ledger</h2>";
  if (!summary.ledger.has_value()) {
    return html +
           "<p class=\"verdict fair\">The parameter servers' tables were not read: nothing is claimed.</p></section>";
  }
  const LedgerSummary& ledger = *summary.ledger;
  absl::StrAppend(&html, "<p class=\"verdict ", LedgerExact(ledger) ? "good" : "bad", "\">",
                  Escape(LedgerVerdict(ledger)), "</p><table class=\"figures\"><tr>");
  for (const char* name : {"expected", "applied", "missing", "duplicated", "skipped"}) {
    absl::StrAppend(&html, "<th>", name, "</th>");
  }
  absl::StrAppend(&html, "</tr><tr>");
  for (const std::uint64_t value :
       {ledger.expected, ledger.applied, ledger.missing, ledger.duplicated, ledger.skipped}) {
    absl::StrAppend(&html, "<td>", value, "</td>");
  }
  return html + "</tr></table></section>";
}

std::string RenderEvents(const RunHistory& history) {
  std::string html = "<section class=\"card\"><h2>Events</h2>";
  if (history.events.empty()) return html + "<p class=\"none\">None.</p></section>";
  const std::vector<TimelineEvent> events = FoldEvents(history.events);
  const std::size_t first = events.size() - std::min(events.size(), kMaxEvents);
  if (first > 0) absl::StrAppend(&html, "<p class=\"note\">The newest ", kMaxEvents, " of ", events.size(), ".</p>");
  absl::StrAppend(&html, "<div class=\"scroll\"><table><tr><th>time</th><th>reason</th><th>message</th></tr>");
  for (std::size_t i = first; i < events.size(); ++i) {
    const TimelineEvent& event = events[i];
    absl::StrAppend(&html, "<tr><td class=\"time\">", FormatDuration(event.seconds), "</td><td class=\"",
                    event.warning ? "bad" : "plain", "\">", Escape(event.reason), "</td><td>", Escape(event.message),
                    "</td></tr>");
  }
  return html + "</table></div></section>";
}

std::string RenderPlace(const RunSummary& summary) {
  std::string html;
  for (const auto& [name, value] :
       {std::pair("model", summary.model_path), std::pair("newest checkpoint", summary.checkpoint),
        std::pair("resumed from", summary.resumed_from), std::pair("run folder", summary.run_directory),
        std::pair("job uid", summary.job_uid)}) {
    if (!value.empty()) absl::StrAppend(&html, "<tr><th>", name, "</th><td><code>", Escape(value), "</code></td></tr>");
  }
  return html.empty() ? ""
                      : absl::StrCat("<section class=\"card\"><h2>Output</h2><div class=\"scroll\"><table>", html,
                                     "</table></div></section>");
}

constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#1b1f27;--soft:#626b7a;--line:#e1e4ea;
--good:#16794c;--bad:#c3293c;--fair:#96650a;--c1:#2f67d8;--c2:#16794c;--c3:#8a4fc7;--bar:#7ea6ea;--again:#b59ae0;--on:#14213a}
@media(prefers-color-scheme:dark){:root{--page:#14171d;--card:#1d2129;--ink:#e8eaef;--soft:#9aa3b2;--line:#323843;
--good:#4cc38a;--bad:#ff7a85;--fair:#e3b14b;--c1:#7aa7ff;--c2:#4cc38a;--c3:#c39bf5;--bar:#3f66ad;--again:#6d55a3;--on:#eef2fb}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1200px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:26px;margin:0;overflow-wrap:anywhere}h2{font-size:16px;margin:0 0 10px}header{margin-bottom:18px}header p{margin:6px 0 0;color:var(--soft);overflow-wrap:anywhere}
.badge{font-size:14px;font-weight:600;padding:3px 10px;border:1px solid currentColor;border-radius:99px;vertical-align:middle;margin-left:6px}
.good{color:var(--good)}.bad{color:var(--bad)}.fair{color:var(--fair)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(125px,1fr));gap:12px;margin-bottom:16px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}.tile b{display:block;font-size:21px;line-height:1.3;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.card{padding:16px 18px;margin:0 0 16px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:16px;margin-bottom:16px}.charts .card{margin:0}
figcaption{font-weight:600;margin-bottom:6px}svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}svg text.on{fill:var(--on);font-size:11px}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.fault{stroke:var(--bad);stroke-width:1.2;stroke-dasharray:4 3;opacity:.75}
path.c1,path.c2,path.c3{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
.bar{fill:var(--bar)}.again{fill:var(--again)}.mark circle{fill:var(--bad);stroke:var(--card);stroke-width:1.5}.mark path{stroke:var(--card);stroke-width:1.8;fill:none}
.scroll{overflow-x:auto}.gantt{min-width:720px}
table{border-collapse:collapse;font-size:14px}th,td{text-align:left;padding:4px 18px 4px 0;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child>*{border-bottom:0}th{color:var(--soft);font-weight:500}.time{white-space:nowrap;font-variant-numeric:tabular-nums}
.verdict{font-size:16px;font-weight:600;margin:0 0 10px}.figures td{font-variant-numeric:tabular-nums}
.note,.none{color:var(--soft);font-size:13px;margin:8px 0 0}.none{margin:0}
pre{overflow-x:auto;font-size:13px;line-height:1.45;margin:12px 0 0}summary{cursor:pointer;font-weight:600}code{overflow-wrap:anywhere}
)css";

}  // namespace

std::string RenderReport(const RunHistory& history) {
  const double end = EndOfRun(history);
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      Escape(history.summary.job), " - Downpour run</title><style>", kStyle, "</style></head>\n<body><main>",
      absl::StrCat(RenderHead(history), RenderLedger(history.summary), RenderCharts(history, end),
                   RenderTimeline(history, end), RenderEvents(history), RenderPlace(history.summary)),
      "<details class=\"card\"><summary>Manifest</summary><pre>", Escape(api::ToJson(history.job)),
      "</pre></details></main></body></html>\n");
}

}  // namespace downpour::cli
