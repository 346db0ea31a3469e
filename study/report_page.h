// The parts of a report: figures, tables as text, Markdown and CSV, and a page
// of figures and tables as one HTML file, which opens without a network. The
// file has the data of the figures; coordinator/pages draws them. Pure: numbers
// in, text out. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPORT_PAGE_H_
#define GAVEL_STUDY_REPORT_PAGE_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gavel::study {

// ---- figures: lines and dots over two axes, bars over time, a map of colours

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
enum class PlotMark { kLine, kSteps, kDots, kCrosses };

struct PlotSeries {
  std::string name;
  size_t color = 0;  // of series that belong together the same
  PlotMark mark = PlotMark::kLine;
  std::vector<PlotPoint> points;  // one that is not finite: a hole
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
  bool diagonal = false;  // y = x, as a thin line; the axes have ends
};

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
  std::string unit;  // of time
  double x_max = 1;
  std::vector<std::string> rows;
  // The colours have names, or a bar shows the number of its colour.
  std::vector<std::string> names;
  std::vector<Bar> bars;
};

// A square of values from 0 to 1; NaN: none.
struct HeatMap {
  std::string title;
  std::vector<std::string> names;
  std::vector<double> values;  // [names x names] row-major
  std::string none;            // what it means that there is no value
};

using Figure = std::variant<Plot, BarChart, HeatMap>;

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
  std::vector<std::string> notes = {};  // what is not shown, and why
  std::vector<Figure> figures = {};
  ReportTable table = {};  // no titles: none
};

struct ReportPage {
  std::string title;
  std::string summary;  // a line below it
  std::vector<ReportSection> sections;
};

std::string RenderPage(const ReportPage& page);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPORT_PAGE_H_
