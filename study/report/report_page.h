// The page that `gavel report` writes: sections of plots and tables as one HTML
// file that needs nothing else. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPORT_REPORT_PAGE_H_
#define GAVEL_STUDY_REPORT_REPORT_PAGE_H_

#include <string>
#include <vector>

namespace gavel {

// Comma-separated values with a line of titles (RFC 4180).
class Csv {
 public:
  Csv() = default;
  explicit Csv(const std::vector<std::string>& titles) { Add(titles); }
  void Add(const std::vector<std::string>& cells);
  const std::string& text() const { return text_; }
  bool empty() const { return rows_ < 2; }

 private:
  std::string text_;
  size_t rows_ = 0;
};

struct ReportTable {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

struct ReportSection {
  std::string id;     // "jct-rate": of the anchor, and of the CSV file
  std::string title;  // "JCT against rate"
  std::string text;   // what is shown, and how to read it
  std::vector<std::string> notes;    // what is not shown, and why
  std::vector<std::string> figures;  // SVG
  ReportTable table;                 // no titles: none
  Csv csv;                           // what the figures are drawn from
};

struct ReportPage {
  std::string title;
  std::string summary;  // a line below it
  std::vector<ReportSection> sections;
};

std::string RenderPage(const ReportPage& page);

}  // namespace gavel

#endif  // GAVEL_STUDY_REPORT_REPORT_PAGE_H_
