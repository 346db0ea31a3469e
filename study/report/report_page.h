// What reports are made of: tables as text, Markdown and CSV, and a page of
// plots and tables as one HTML file. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPORT_REPORT_PAGE_H_
#define GAVEL_STUDY_REPORT_REPORT_PAGE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace gavel::study {

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

#endif  // GAVEL_STUDY_REPORT_REPORT_PAGE_H_
