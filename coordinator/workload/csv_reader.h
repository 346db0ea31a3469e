// Reads a CSV with a header row by row, with an error that points into it:
// "SOURCE:LINE:COLUMN: what; remedy". Internal to this folder.
//
// A field may stand between double quotes, and then hold commas, but neither
// quotes nor line ends. Errors are sticky. Not thread-safe; it borrows the
// text, the source and the status.
#ifndef GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_
#define GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/workload/text_lines.h"

namespace gavel {

class CsvReader {
 public:
  static constexpr size_t kNoColumn = SIZE_MAX;

  // Reads the header. No name may be there twice.
  CsvReader(std::string_view text, std::string_view source,
            absl::Status& status);

  // Number of the column with the first of these names that is there.
  size_t FindColumn(std::initializer_list<std::string_view> names) const;
  // The same; an error unless it is there.
  size_t RequireColumn(std::string_view name);
  // An error at a column with another name than these. Before the first row.
  void RefuseOtherColumns(std::initializer_list<std::string_view> known);

  // To the next row; false: there is none, or an error.
  bool NextRow();
  // Of the row; `column` as found.
  std::string_view Text(size_t column) const { return fields_[column].text; }
  double Number(size_t column, const NumberRange& range);
  int Integer(size_t column, int min, int max);
  void Fail(size_t column, std::string_view what);

 private:
  void ReadLine(const TextLine& line);
  FieldReader Reader() { return FieldReader(line_, source_, status_); }

  TextLines lines_;
  std::string_view source_;
  absl::Status& status_;
  TextLine header_ = {.number = 1};
  std::vector<std::string_view> names_;
  TextLine line_;
  std::vector<TextField> fields_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_
