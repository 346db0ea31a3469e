// Reads a CSV with a header row by row, with an error that points into it:
// "SOURCE:LINE:COLUMN: what; remedy". Internal to this folder.
//
// Fields are separated by what the header has first of tab, semicolon and
// comma, and may stand between double quotes (RFC 4180, without line ends).
// Names count without case, with "_" for spaces and dashes. Comments ("#") may
// stand above the header, or be it. Errors are sticky. Not thread-safe; it
// borrows the text, the source and the status.
#ifndef GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_
#define GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_

#include <cstddef>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
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
  size_t FindColumn(std::initializer_list<std::string_view> names);
  // The same; an error unless it is there.
  size_t RequireColumn(std::initializer_list<std::string_view> names);
  // After those, before the first row: an error at a column with a name that
  // was not found and is not `ignored` (names between commas, or "*" for all;
  // null: none can be). Returns the names of those that are ignored.
  std::vector<std::string> RefuseOtherColumns(
      std::optional<std::string_view> ignored = std::nullopt);

  // To the next row; false: there is none, or an error.
  bool NextRow();
  // Of the row; `column` as found.
  std::string_view Text(size_t column) const { return fields_[column].text; }
  std::string_view NameOf(size_t column) const { return names_[column]; }
  double Number(size_t column, const NumberRange& range);
  int Integer(size_t column, int min, int max);
  void Fail(size_t column, std::string_view what);

 private:
  void ReadHeader();
  void RefuseColumn(size_t column, bool may_be_ignored);
  void ReadLine(const TextLine& line);
  std::optional<TextField> TakeQuoted(std::string_view line, size_t& begin);
  TextField TakePlain(std::string_view line, size_t& begin) const;
  FieldReader Reader() { return FieldReader(line_, source_, status_); }

  TextLines lines_;
  std::string_view source_;
  absl::Status& status_;
  char separator_ = ',';
  TextLine header_ = {.number = 1};
  std::vector<std::string> names_;
  std::vector<size_t> found_;                // columns that were asked for
  std::vector<std::string_view> asked_for_;  // their names, also of those that
  std::vector<std::string_view> other_names_;  // are not there; others for them
  TextLine line_;
  std::vector<TextField> fields_;
  std::deque<std::string> unquoted_;  // fields with quotes inside
};

// How names of columns are compared: " Submit Time" as "submit_time".
std::string ColumnName(std::string_view text);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_CSV_READER_H_
