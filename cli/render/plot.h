#ifndef DOWNPOUR_CLI_RENDER_PLOT_H_
#define DOWNPOUR_CLI_RENDER_PLOT_H_

#include <string>
#include <vector>

// Plots as SVG within a page. All pure; text is escaped here.
namespace downpour::cli {

// What a run can have and a drawing can show: leaves out what is no number and what would lose the axes their
// precision.
bool Drawable(double value);

// A coordinate of a drawing.
std::string At(double value);

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string title;  // shown on hovering over its mark; empty: it has none, unless it is alone
};

struct PlotSeries {
  std::string name;               // in the legend; empty: it is not in it
  std::string colour;             // classes of the line and its marks
  std::vector<PlotPoint> points;  // one that is not drawable breaks the line
};

// A vertical dashed line.
struct PlotMark {
  double x = 0;
  std::string title;
};

// Ticks at whole minutes and hours, or at round numbers.
enum class PlotScale { kTime, kCount };

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  PlotScale x_scale = PlotScale::kTime;
  double x_end = 1;  // the axis begins at 0; more than 0
  bool from_zero = false;
  std::vector<PlotSeries> series;
  std::vector<PlotMark> marks;
  std::string empty;  // what to say when there is nothing to draw
  std::string note;   // below it; may be empty
};

// A figure with a legend of the named series. Styled by the classes of RenderPage and those of the series.
std::string RenderPlot(const Plot& plot);

// Grid lines and labels of an axis of time from 0 to `end`, `left` to `left + width`, in about `ticks` parts.
std::string RenderTimeTicks(double end, int ticks, double left, double width, double top, double bottom);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_PLOT_H_
