#include "cli/render/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render/format.h"
#include "cli/render/page.h"

namespace downpour::cli {
namespace {

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

// From 0 to `end`; time that is long has its ticks at whole minutes and hours.
Axis RangeAxis(PlotScale scale, double end, int ticks) {
  Axis axis;
  axis.high = end;
  axis.step = NiceStep(end / ticks);
  for (const double step : {10., 15., 30., 60., 120., 300., 600., 900., 1800., 3600., 7200., 14400., 28800., 86400.}) {
    if (scale == PlotScale::kTime && end / ticks > 10 && step >= end / ticks) {
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

std::string RenderTicks(PlotScale scale, double end, int ticks, double left, double width, double top, double bottom) {
  const Axis axis = RangeAxis(scale, end, ticks);
  std::string svg;
  for (const double tick : axis.ticks) {
    const std::string x = At(left + tick / axis.high * width);
    absl::StrAppend(&svg, "<line class=\"grid\" x1=\"", x, "\" y1=\"", At(top), "\" x2=\"", x, "\" y2=\"", At(bottom),
                    "\"/><text x=\"", x, "\" y=\"", At(bottom + 16), "\" text-anchor=\"middle\">",
                    scale == PlotScale::kTime ? TimeLabel(tick, axis.step) : ValueLabel(tick, axis.step), "</text>");
  }
  return svg;
}

// ---- plots

constexpr double kWidth = 560;
constexpr double kHeight = 250;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 40;
constexpr double kInnerWidth = kWidth - kLeft - kRight;
constexpr double kInnerBottom = kHeight - kBottom;

bool IsDrawn(const PlotPoint& point) { return Drawable(point.x) && Drawable(point.y); }

// Where the values of a plot lie on the drawing.
struct Scales {
  double x_end = 1;
  Axis y_axis;

  double X(double x) const { return kLeft + std::clamp(x / x_end, 0.0, 1.0) * kInnerWidth; }
  double Y(double y) const {
    return kInnerBottom - (y - y_axis.low) / (y_axis.high - y_axis.low) * (kInnerBottom - kTop);
  }
};

std::string TitleElement(const std::string& title) {
  return title.empty() ? "" : absl::StrCat("<title>", Escape(title), "</title>");
}

std::string RenderSeries(const PlotSeries& series, const Scales& scales) {
  const std::ptrdiff_t drawable =
      std::count_if(series.points.begin(), series.points.end(), [](const PlotPoint& point) { return IsDrawn(point); });
  if (drawable == 0) return "";
  std::string line;
  std::string marks;
  bool pen_down = false;
  for (const PlotPoint& point : series.points) {
    if (!IsDrawn(point)) {
      pen_down = false;
      continue;
    }
    const std::string x = At(scales.X(point.x));
    const std::string y = At(scales.Y(point.y));
    absl::StrAppend(&line, pen_down ? "L" : "M", x, " ", y);
    if (!pen_down) absl::StrAppend(&line, "h0");  // the round end of the stroke shows a point without neighbours
    pen_down = true;
    if (point.title.empty() && drawable > 1) continue;
    absl::StrAppend(&marks, "<circle class=\"", series.colour, "\" cx=\"", x, "\" cy=\"", y, "\" r=\"3.5\">",
                    TitleElement(point.title.empty() ? series.name : point.title), "</circle>");
  }
  return absl::StrCat("<path class=\"curve ", series.colour, "\" d=\"", line, "\">", TitleElement(series.name),
                      "</path>", marks);
}

std::string RenderMarks(const std::vector<PlotMark>& marks, const Scales& scales) {
  std::string svg;
  for (const PlotMark& mark : marks) {
    if (!Drawable(mark.x)) continue;
    const std::string x = At(scales.X(mark.x));
    absl::StrAppend(&svg, "<line class=\"fault\" x1=\"", x, "\" y1=\"", At(kTop), "\" x2=\"", x, "\" y2=\"",
                    At(kInnerBottom), "\">", TitleElement(mark.title), "</line>");
  }
  return svg;
}

std::string RenderLegend(const std::vector<PlotSeries>& all) {
  std::string html;
  for (const PlotSeries& series : all) {
    if (series.name.empty()) continue;
    absl::StrAppend(&html, "<span><svg viewBox=\"0 0 28 8\"><path class=\"curve ", series.colour,
                    "\" d=\"M2 4L26 4\"/></svg>", Escape(series.name), "</span>");
  }
  return html.empty() ? "" : absl::StrCat("<div class=\"legend\">", html, "</div>");
}

std::string RenderDrawing(const Plot& plot, double low, double high) {
  const Scales scales{plot.x_end, ValueAxis(plot.from_zero ? std::min(low, 0.0) : low, high, 5)};
  std::string svg = absl::StrCat("<svg viewBox=\"0 0 ", At(kWidth), " ", At(kHeight), "\" role=\"img\" aria-label=\"",
                                 Escape(plot.title), "\">",
                                 RenderTicks(plot.x_scale, plot.x_end, 6, kLeft, kInnerWidth, kTop, kInnerBottom));
  for (const double tick : scales.y_axis.ticks) {
    const std::string y = At(scales.Y(tick));
    absl::StrAppend(&svg, "<line class=\"grid\" x1=\"", At(kLeft), "\" y1=\"", y, "\" x2=\"", At(kLeft + kInnerWidth),
                    "\" y2=\"", y, "\"/><text x=\"", At(kLeft - 7), "\" y=\"", At(scales.Y(tick) + 4),
                    "\" text-anchor=\"end\">", ValueLabel(tick, scales.y_axis.step), "</text>");
  }
  absl::StrAppend(&svg, "<line class=\"axis\" x1=\"", At(kLeft), "\" y1=\"", At(kInnerBottom), "\" x2=\"",
                  At(kLeft + kInnerWidth), "\" y2=\"", At(kInnerBottom), "\"/><text x=\"", At(kLeft + kInnerWidth / 2),
                  "\" y=\"", At(kHeight - 4), "\" text-anchor=\"middle\">", Escape(plot.x_label),
                  "</text><text transform=\"translate(12 ", At((kTop + kInnerBottom) / 2),
                  ") rotate(-90)\" text-anchor=\"middle\">", Escape(plot.y_label), "</text>");
  absl::StrAppend(&svg, RenderMarks(plot.marks, scales));
  for (const PlotSeries& series : plot.series) absl::StrAppend(&svg, RenderSeries(series, scales));
  return svg + "</svg>";
}

}  // namespace

bool Drawable(double value) { return std::abs(value) < 1e15; }

std::string At(double value) { return absl::StrFormat("%.1f", value); }

std::string RenderTimeTicks(double end, int ticks, double left, double width, double top, double bottom) {
  return RenderTicks(PlotScale::kTime, end, ticks, left, width, top, bottom);
}

std::string RenderPlot(const Plot& plot) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!IsDrawn(point)) continue;
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  const bool drawable = low <= high;
  return absl::StrCat("<figure class=\"card\"><figcaption>", Escape(plot.title), "</figcaption>",
                      drawable ? RenderDrawing(plot, low, high) + RenderLegend(plot.series)
                               : absl::StrCat("<p class=\"none\">", Escape(plot.empty), "</p>"),
                      plot.note.empty() ? "" : absl::StrCat("<p class=\"note\">", Escape(plot.note), "</p>"),
                      "</figure>");
}

}  // namespace downpour::cli
