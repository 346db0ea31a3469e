// Text by lines and fields, with places for errors that point into it:
// "SOURCE:LINE:COLUMN: what; remedy". The parsers of traces, price series and
// options are written with it. Views into the caller's text; not thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_
#define GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
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

// Replaces `fields` by what is between the `separator`s.
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

  // A number in the range, else an error: `name` is what it stands for.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TEXT_LINES_H_
