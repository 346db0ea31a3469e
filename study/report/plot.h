// Plots as SVG for one page of HTML: lines and points over two axes, bars over
// time, a map of colours. Pure: numbers in, text out. Stateless, thread-safe.
//
// Colours are CSS variables --s0 to --s9 of the page (report_page.h), so that
// it can be light or dark; each series differs by dash and dot as well.
#ifndef GAVEL_STUDY_REPORT_PLOT_H_
#define GAVEL_STUDY_REPORT_PLOT_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gavel::study {

// Axes of plots: where the ticks are, and where a value is drawn.
struct PlotTick {
  double value = 0;
  std::string label;  // empty: a line without a word
};

// The smallest and largest of values seen so far.
struct PlotRange {
  double min = 0;
  double max = 0;
  bool empty = true;
  void Add(double value);  // NaN and infinity are left out
};

class PlotScale {
 public:
  // From 0 (or below) or from near the least value, to a round number.
  static PlotScale Linear(PlotRange range, bool from_zero);
  // To exactly these ends.
  static PlotScale Fixed(double min, double max);
  // Powers of ten; what is not above 0 is drawn at the lower end.
  static PlotScale Log(PlotRange range);

  // Draws min at `low` and max at `high`, in pixels.
  void Place(double low, double high);
  double At(double value) const;
  const std::vector<PlotTick>& ticks() const { return ticks_; }
  double min() const { return min_; }
  double max() const { return max_; }

 private:
  PlotScale(double min, double max, bool log);
  void MakeLinearTicks(double step);
  void MakeLogTicks();
  double Forward(double value) const;

  double min_;
  double max_;
  bool log_;
  double low_ = 0;
  double high_ = 1;
  std::vector<PlotTick> ticks_;
};

// "0", "2.5", "1200", "1e+06": at most `digits` significant ones.
std::string PlotNumber(double value, int digits = 6);

// `text` safe between tags and in quoted attributes.
std::string EscapeHtml(std::string_view text);

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string note;  // shown under the pointer; may be empty
  // Ends of the point's error bar; NaN: it has none.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

// kSteps: each value lasts to the next x. kCrosses: marks of their own, not
// named in the legend.
enum class PlotMark { kLine, kLineAndDots, kSteps, kDots, kCrosses };

struct PlotSeries {
  std::string name;
  size_t color = 0;  // of series that belong together the same
  PlotMark mark = PlotMark::kLineAndDots;
  std::vector<PlotPoint> points;
};

struct PlotAxis {
  std::string label;  // with its unit
  bool log = false;
  bool from_zero = true;
  std::optional<double> min;  // both: exactly these ends
  std::optional<double> max;
};

struct Plot {
  std::string title;
  PlotAxis x;
  PlotAxis y;
  std::vector<PlotSeries> series;
  bool diagonal = false;  // y = x, as a thin line
};
std::string RenderPlot(const Plot& plot);

// Rows of bars over time (a Gantt chart).
struct BarChart {
  struct Bar {
    size_t row = 0;
    double from = 0;
    double to = 0;
    size_t color = 0;
    std::string note;
  };
  std::string title;
  std::string x_label;
  double x_max = 1;
  // Rows that belong together: a name, and how many.
  std::vector<std::pair<std::string, size_t>> groups;
  std::vector<Bar> bars;
};
std::string RenderBars(const BarChart& chart);

// A square of values from 0 to 1; NaN: none, drawn dark.
struct HeatMap {
  std::string title;
  std::vector<std::string> names;
  std::vector<double> values;  // [names x names] row-major
};
std::string RenderHeatMap(const HeatMap& map);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_PLOT_H_
