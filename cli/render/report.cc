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
#include "cli/render/fold_events.h"
#include "cli/render/format.h"
#include "cli/render/page.h"
#include "cli/render/plot.h"
#include "cli/render/summary_text.h"
#include "cli/render/test_metrics.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr std::size_t kMaxMembers = 100;
constexpr std::size_t kMaxEvents = 500;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // not drawn; a dash as text

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

// Vertical lines at the failures, so that the curves show what a failure did.
std::vector<PlotMark> FailureMarks(const RunHistory& history) {
  std::vector<PlotMark> marks;
  for (const TimelineSpan& span : history.spans) {
    if (IsFailure(span)) marks.push_back({*span.end_seconds, absl::StrCat(span.name, ": ", span.end_cause)});
  }
  return marks;
}

// One curve over the time since the start; `colour` is a class.
struct Chart {
  std::string title;
  std::string unit;
  std::string colour;
  std::vector<PlotPoint> points;
  bool from_zero = false;
  std::string empty;
};

std::string RenderChart(const RunHistory& history, Chart chart, double end) {
  Plot plot;
  plot.title = chart.title;
  plot.x_label = "time since start";
  plot.y_label = chart.unit;
  plot.x_end = end;
  plot.from_zero = chart.from_zero;
  plot.series.push_back({"", chart.colour, std::move(chart.points)});
  plot.marks = FailureMarks(history);
  plot.empty = chart.empty;
  return RenderPlot(plot);
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
  absl::StrAppend(&html, "<div class=\"scroll\"><svg class=\"gantt\" viewBox=\"0 0 ", At(kFull), " ", At(bottom + 24),
                  "\" role=\"img\" aria-label=\"Timeline of the members\">",
                  RenderTimeTicks(end, 12, kNames, width, 0, bottom));
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

std::string RenderLedger(const RunHistory& history) {
  const RunSummary& summary = history.summary;
  std::string html = "<section class=\"card\"><h2>Ledger</h2>";
  if (!summary.ledger.has_value()) {
    const bool ring = history.job.spec.strategy == api::Strategy::kAllReduce;
    return absl::StrCat(html, "<p class=\"verdict fair\">The ", ring ? "workers'" : "parameter servers'",
                        " tables were not read: nothing is claimed.</p></section>");
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
       {std::pair("model", summary.model_path), std::pair("best model", summary.best_path),
        std::pair("best in", summary.best_epoch.has_value() ? summary.best_reason : ""),
        std::pair("learning rate", summary.rate_reason), std::pair("newest checkpoint", summary.checkpoint),
        std::pair("resumed from", summary.resumed_from), std::pair("run folder", summary.run_directory),
        std::pair("job uid", summary.job_uid)}) {
    if (!value.empty()) absl::StrAppend(&html, "<tr><th>", name, "</th><td><code>", Escape(value), "</code></td></tr>");
  }
  return html.empty() ? ""
                      : absl::StrCat("<section class=\"card\"><h2>Output</h2><div class=\"scroll\"><table>", html,
                                     "</table></div></section>");
}

constexpr char kStyle[] = R"css(
:root{--c1:#2f67d8;--c2:#16794c;--c3:#8a4fc7;--bar:#7ea6ea;--again:#b59ae0;--on:#14213a}
@media(prefers-color-scheme:dark){:root{--c1:#7aa7ff;--c2:#4cc38a;--c3:#c39bf5;--bar:#3f66ad;--again:#6d55a3;--on:#eef2fb}}
.badge{font-size:14px;font-weight:600;padding:3px 10px;border:1px solid currentColor;border-radius:99px;vertical-align:middle;margin-left:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(125px,1fr));gap:12px;margin-bottom:16px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.tile b{display:block;font-size:21px;line-height:1.3;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
svg text.on{fill:var(--on);font-size:11px}
path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
.bar{fill:var(--bar)}.again{fill:var(--again)}.mark circle{fill:var(--bad);stroke:var(--card);stroke-width:1.5}.mark path{stroke:var(--card);stroke-width:1.8;fill:none}
.gantt{min-width:720px}.verdict{font-size:16px;font-weight:600;margin:0 0 10px}
pre{overflow-x:auto;font-size:13px;line-height:1.45;margin:12px 0 0}summary{cursor:pointer;font-weight:600}
)css";

}  // namespace

std::string RenderReport(const RunHistory& history) {
  const double end = EndOfRun(history);
  return RenderPage(absl::StrCat(history.summary.job, " - Downpour run"), kStyle,
                    absl::StrCat(RenderHead(history), RenderLedger(history), RenderCharts(history, end),
                                 RenderTimeline(history, end), RenderEvents(history), RenderPlace(history.summary),
                                 "<details class=\"card\"><summary>Manifest</summary><pre>",
                                 Escape(api::ToJson(history.job)), "</pre></details>"));
}

}  // namespace downpour::cli
