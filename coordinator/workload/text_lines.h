// Text by lines and fields, with places for errors that point into it:
// "SOURCE:LINE:COLUMN: what; remedy"; CSV with a header; and lists of figures
// as options on a command line. The parsers of traces, price series and options
// are written with it. Views into the caller's text; not thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_
#define GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/toml_reader.h"

namespace gavel {

// The part of a line between two separators.
struct TextField {
  std::string_view text = {};
  size_t offset = 0;  // in the line, bytes
};

struct TextLine {
  std::string_view text = {};  // without its end ("\n", "\r\n" or none)
  size_t number = 0;           // from 1
};

bool IsBlank(std::string_view text);
// Begins with "#".
inline bool IsComment(const TextLine& line) {
  return line.text.starts_with('#');
}

// Goes through the lines of a text one by one, without those that are blank.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}
  // nullopt: there are no more.
  std::optional<TextLine> Next();

 private:
  std::string_view rest_;
  size_t number_ = 0;
};

// Replaces `fields` by the parts of the line between the `separator`s.
void SplitFields(std::string_view line, char separator,
                 std::vector<TextField>& fields);

// All of `text` as a number, without spaces around it; nullopt: it is none.
std::optional<double> ParseNumber(std::string_view text);
std::optional<int> ParseInteger(std::string_view text);

// Reads the fields of one line; errors are sticky, as TomlReader's.
class FieldReader {
 public:
  FieldReader(const TextLine& line, std::string_view source,
              absl::Status& status)
      : line_(line), source_(source), status_(status) {}

  // Reads a number in the range, else sets an error, which calls the field
  // `name`.
  double Number(const TextField& field, std::string_view name,
                const NumberRange& range);
  int Integer(const TextField& field, std::string_view name, int min, int max);
  void Fail(const TextField& field, std::string_view what);
  // At the end of the line.
  void FailAtEnd(std::string_view what);

 private:
  const TextLine& line_;
  std::string_view source_;
  absl::Status& status_;
};

// Reads a CSV with a header row by row, with an error that points into it.
//
// Fields are separated by what the header has first of tab, semicolon and
// comma, and may stand between double quotes (RFC 4180, without line ends).
// Names count without case, with "_" for spaces and dashes. Comments ("#") may
// stand above the header, or be it. Errors are sticky. Not thread-safe; it
// borrows the text, the source and the status.
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
  // The field of the row; FindColumn or RequireColumn gave `column`.
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

// Lists of figures, "name=number,name=number".

// The parts in their order. INVALID_ARGUMENT quotes the part that is not
// name=number, whose number is out of range or whose name is there twice, and
// gives `example`.
absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseNamedNumbers(
    std::string_view text, const NumberRange& range, std::string_view example);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_
