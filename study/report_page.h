// The parts of a report: plots as SVG, tables as text, Markdown and CSV, and a
// page of plots and tables as one HTML file. Pure: numbers in, text out.
// Stateless, thread-safe.
//
// Colours of plots are CSS variables --s0 to --s9 of the page, so that it can
// be light or dark; each series differs by dash and dot as well.
#ifndef GAVEL_STUDY_REPORT_PAGE_H_
#define GAVEL_STUDY_REPORT_PAGE_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gavel::study {

// ---- plots: lines and points over two axes, bars over time, a map of colours

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

// ---- tables and pages

// Each row has a cell for each title.
struct ReportTable {
  std::vector<std::string> titles = {};
  std::vector<std::vector<std::string>> rows = {};
};
// For the terminal and for a document. `right`: of each column, whether it is
// aligned to the right. `width_max`: of a column; 0: as wide as its cells.
std::string RenderText(const ReportTable& table, const std::vector<bool>& right,
                       size_t width, size_t width_max = 0);
std::string RenderMarkdown(const ReportTable& table,
                           const std::vector<bool>& right);

// Comma-separated values with a line of titles (RFC 4180).
class Csv {
 public:
  Csv() = default;
  explicit Csv(const std::vector<std::string>& titles) { Add(titles); }
  explicit Csv(const ReportTable& table) : Csv(table.titles) {
    for (const auto& row : table.rows) Add(row);
  }
  void Add(const std::vector<std::string>& cells);
  const std::string& text() const { return text_; }
  bool empty() const { return rows_ < 2; }

 private:
  std::string text_;
  size_t rows_ = 0;
};

struct ReportSection {
  std::string id;     // "jct-rate": of the anchor, and of the CSV file
  std::string title;  // "JCT against rate"
  std::string text;   // what is shown, and how to read it
  Csv csv = {};       // what the figures are drawn from
  std::vector<std::string> notes = {};    // what is not shown, and why
  std::vector<std::string> figures = {};  // SVG
  ReportTable table = {};                 // no titles: none
};

struct ReportPage {
  std::string title;
  std::string summary;  // a line below it
  std::vector<ReportSection> sections;
};

std::string RenderPage(const ReportPage& page);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_PAGE_H_
