#include "cli/render/comparison.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/render/format.h"
#include "cli/render/page.h"
#include "cli/render/plot.h"
#include "cli/render/test_metrics.h"

namespace downpour::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A run is known by its colour, and by its dashes where there are more runs than colours. The colours are those of
// Okabe and Ito (2008), which people with any colour vision tell apart; without yellow, which is too pale on white.
constexpr std::size_t kColours = 7;
constexpr std::size_t kDashes = 4;
constexpr char kStyle[] = R"css(
main{max-width:1560px}.charts{grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr))}
td{font-variant-numeric:tabular-nums}
path.r0{stroke:#0072b2}path.r1{stroke:#d55e00}path.r2{stroke:#009e73}path.r3{stroke:#cc79a7}path.r4{stroke:#e69f00}path.r5{stroke:#56b4e9}path.r6{stroke:var(--ink)}
circle.r0{fill:#0072b2}circle.r1{fill:#d55e00}circle.r2{fill:#009e73}circle.r3{fill:#cc79a7}circle.r4{fill:#e69f00}circle.r5{fill:#56b4e9}circle.r6{fill:var(--ink)}
path.d1{stroke-dasharray:7 5}path.d2{stroke-dasharray:2 4}path.d3{stroke-dasharray:9 4 2 4}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin-top:8px;font-size:13px;overflow-wrap:anywhere}
.legend span{display:flex;align-items:center;gap:6px}.legend svg,.key{width:28px;flex:none}.key{margin-top:6px}
)css";

std::string StyleOf(std::size_t run) {
  const std::size_t dashes = run / kColours % kDashes;
  return absl::StrCat("r", run % kColours, dashes == 0 ? "" : absl::StrCat(" d", dashes));
}

using Row = std::vector<std::string>;

// A heading and a row for each run.
std::vector<Row> TableOf(const Comparison& comparison) {
  Row heading = {"name",    "phase", "mode", "optimizer",         "codec",
                 "workers", "ps",    "loss", "best test metrics", "samples/s"};
  for (const std::string& target : comparison.targets) heading.push_back("to " + target);
  for (const char* name : {"updates lost", "pushed", "pulled"}) heading.emplace_back(name);
  std::vector<Row> rows = {std::move(heading)};
  for (const ComparedRun& run : comparison.runs) {
    Row row = {run.name,
               run.phase,
               run.mode,
               run.optimizer,
               run.codec,
               absl::StrCat(run.workers),
               run.ps.has_value() ? absl::StrCat(*run.ps) : "-",
               FormatDecimal(run.loss.value_or(kUnknown), 4),
               run.best.empty() ? "-" : MetricsText(run.best),
               FormatCount(run.samples_per_second.value_or(kUnknown))};
    for (const std::optional<double>& seconds : run.seconds_to)
      row.push_back(FormatDuration(seconds.value_or(kUnknown)));
    row.push_back(run.lost_updates.has_value() ? absl::StrCat(*run.lost_updates) : "-");
    row.push_back(run.bytes.has_value() ? FormatBytes(run.bytes->received) : "-");
    row.push_back(run.bytes.has_value() ? FormatBytes(run.bytes->sent) : "-");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string RenderHeading(const Row& names) {
  std::string html = "<tr>";
  for (const std::string& name : names) absl::StrAppend(&html, "<th>", Escape(name), "</th>");
  return html + "</tr>";
}

std::string RenderFigures(const Comparison& comparison) {
  const std::vector<Row> rows = TableOf(comparison);
  Row heading = rows.front();
  heading.insert(heading.begin(), "");  // the colour
  std::string html =
      absl::StrCat("<section class=\"card\"><h2>Runs</h2><div class=\"scroll\"><table>", RenderHeading(heading));
  for (std::size_t run = 0; run < comparison.runs.size(); ++run) {
    absl::StrAppend(&html, "<tr><td><svg class=\"key\" viewBox=\"0 0 28 8\"><path class=\"curve ", StyleOf(run),
                    "\" d=\"M2 4L26 4\"/></svg></td>");
    for (const std::string& cell : rows[run + 1]) absl::StrAppend(&html, "<td>", Escape(cell), "</td>");
    absl::StrAppend(&html, "</tr>");
  }
  return absl::StrCat(html,
                      "</table></div><p class=\"note\">Loss: the newest of training. Times begin with the first update "
                      "of each run. Pushed and pulled: payloads that the parameter servers received and sent. A dash: "
                      "not known, or not reached.</p></section>");
}

std::string RenderDifferences(const Comparison& comparison) {
  std::string html = "<section class=\"card\"><h2>Different in the manifests</h2>";
  if (comparison.differences.empty()) return html + "<p class=\"none\">Nothing.</p></section>";
  Row heading = {"field"};
  for (const ComparedRun& run : comparison.runs) heading.push_back(run.name);
  absl::StrAppend(&html, "<div class=\"scroll\"><table>", RenderHeading(heading));
  for (const ManifestDifference& difference : comparison.differences) {
    absl::StrAppend(&html, "<tr><td><code>", Escape(difference.path), "</code></td>");
    for (const std::optional<std::string>& value : difference.values) {
      absl::StrAppend(&html, "<td>", Escape(value.value_or("-")), "</td>");
    }
    absl::StrAppend(&html, "</tr>");
  }
  return html + "</table></div></section>";
}

// What a quantity is drawn against.
struct Against {
  const char* what;
  const char* label;
  PlotScale scale;
  double (*x)(const ComparedPoint&);
  const char* empty;
};

constexpr Against kAgainst[] = {
    {"time", "time since the first update of the run", PlotScale::kTime,
     [](const ComparedPoint& point) { return point.seconds; }, "It was not recorded."},
    {"samples", "samples trained on", PlotScale::kCount,
     [](const ComparedPoint& point) { return point.samples.value_or(kUnknown); }, "It was not recorded."},
    {"bytes", "bytes pushed and pulled", PlotScale::kCount,
     [](const ComparedPoint& point) { return point.bytes.value_or(kUnknown); }, "No bytes were recorded."},
};

// Where the axis ends, the same for all quantities; never 0.
double EndOf(const Comparison& comparison, const Against& against) {
  double end = 0;
  for (const ComparedQuantity& quantity : comparison.quantities) {
    for (const ComparedSeries& series : quantity.series) {
      for (const ComparedPoint& point : series.points) {
        const double x = against.x(point);
        if (Drawable(x) && Drawable(point.value)) end = std::max(end, x);
      }
    }
  }
  return end > 0 ? end : 1;
}

std::string RenderQuantity(const Comparison& comparison, const ComparedQuantity& quantity, const Against& against) {
  Plot plot;
  plot.title = absl::StrCat(quantity.name, " against ", against.what);
  plot.title[0] = absl::ascii_toupper(static_cast<unsigned char>(plot.title[0]));
  plot.x_label = against.label;
  plot.y_label = quantity.unit;
  plot.x_scale = against.scale;
  plot.x_end = EndOf(comparison, against);
  plot.from_zero = quantity.is_loss;
  plot.empty = against.empty;
  std::vector<std::string> without;
  for (const ComparedRun& run : comparison.runs) without.push_back(run.name);
  for (const ComparedSeries& series : quantity.series) {
    const std::string& name = comparison.runs[series.run].name;
    PlotSeries drawn{name, StyleOf(series.run), {}};
    bool any = false;
    for (const ComparedPoint& point : series.points) {
      drawn.points.push_back({against.x(point), point.value, point.title});
      any = any || (Drawable(drawn.points.back().x) && Drawable(point.value));
    }
    if (!any) continue;
    std::erase(without, name);
    plot.series.push_back(std::move(drawn));
  }
  if (!without.empty() && !plot.series.empty()) plot.note = "Not recorded: " + absl::StrJoin(without, ", ");
  return RenderPlot(plot);
}

}  // namespace

std::string RenderComparison(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const ComparedRun& run : comparison.runs) names.push_back(run.name);
  std::string body = absl::StrCat("<header><h1>Runs compared</h1><p>", Escape(absl::StrJoin(names, ", ")),
                                  "</p></header>", RenderFigures(comparison), RenderDifferences(comparison));
  for (const ComparedQuantity& quantity : comparison.quantities) {
    absl::StrAppend(&body, "<section class=\"charts\">");
    for (const Against& against : kAgainst) absl::StrAppend(&body, RenderQuantity(comparison, quantity, against));
    absl::StrAppend(&body, "</section>");
  }
  return RenderPage("Downpour runs compared", kStyle, body);
}

std::string RenderComparisonText(const Comparison& comparison) {
  std::vector<Row> rows = TableOf(comparison);
  for (std::string& name : rows.front()) absl::AsciiStrToUpper(&name);
  return FormatTable(std::move(rows));
}

}  // namespace downpour::cli
