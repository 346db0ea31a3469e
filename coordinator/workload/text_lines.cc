#include "coordinator/workload/text_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kQuotedBytesMax = 60;  // of a field in an error

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

template <class T>
std::optional<T> NumberOf(std::string_view text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// The character, not the byte: UTF-8 continues with bytes of the form 10xxxxxx.
size_t ColumnOf(std::string_view line, size_t offset) {
  const std::string_view before = line.substr(0, offset);
  return 1 + std::count_if(before.begin(), before.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
         });
}

std::string Quoted(std::string_view text) {
  if (text.size() <= kQuotedBytesMax) return QuoteToml(text);
  return QuoteToml(StrCat(text.substr(0, kQuotedBytesMax), "..."));
}

}  // namespace

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::optional<TextLine> TextLines::Next() {
  while (!rest_.empty()) {
    const size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!IsBlank(line)) return TextLine{line, number_};
  }
  return std::nullopt;
}

void SplitFields(std::string_view line, char separator,
                 std::vector<TextField>& fields) {
  fields.clear();
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(separator, begin), line.size());
    fields.push_back({line.substr(begin, end - begin), begin});
    begin = end + 1;
  }
}

std::optional<double> ParseNumber(std::string_view text) {
  return NumberOf<double>(text);
}

std::optional<int> ParseInteger(std::string_view text) {
  return NumberOf<int>(text);
}

double FieldReader::Number(const TextField& field, std::string_view name,
                           const NumberRange& range) {
  const auto value = ParseNumber(Trimmed(field.text));
  if (value.has_value() && IsWithin(*value, range)) return *value;
  Fail(field,
       StrCat(name, " is ", Quoted(field.text), "; write ", Describe(range)));
  return 0;
}

int FieldReader::Integer(const TextField& field, std::string_view name, int min,
                         int max) {
  // Programs of tables write 8 as "8.0" once a column has a gap.
  const auto value = ParseNumber(Trimmed(field.text));
  if (value.has_value() && *value >= min && *value <= max &&
      *value == std::floor(*value)) {
    return static_cast<int>(*value);
  }
  Fail(field, StrCat(name, " is ", Quoted(field.text),
                     "; write an integer from ", min, " to ", max));
  return 0;
}

void FieldReader::Fail(const TextField& field, std::string_view what) {
  status_.Update(absl::InvalidArgumentError(
      StrCat(source_, ":", line_.number, ":",
             ColumnOf(line_.text, field.offset), ": ", what)));
}

void FieldReader::FailAtEnd(std::string_view what) {
  Fail({.offset = line_.text.size()}, what);
}

// ---- CSV ----

namespace {

constexpr std::string_view kSeparators = "\t;,";
constexpr std::string_view kAllColumns = "*";

// From `begin` on, past spaces.
size_t SkipSpace(std::string_view line, size_t begin, char separator) {
  while (begin < line.size() && line[begin] != separator &&
         (line[begin] == ' ' || line[begin] == '\t')) {
    ++begin;
  }
  return begin;
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

char SeparatorOf(std::string_view header) {
  for (const char separator : kSeparators) {
    if (header.find(separator) != std::string_view::npos) return separator;
  }
  return kSeparators.back();
}

}  // namespace

std::string ColumnName(std::string_view text) {
  std::string name(ToStd(absl::StripAsciiWhitespace(ToAbsl(text))));
  for (char& c : name) {
    c = c == ' ' || c == '-' ? '_' : absl::ascii_tolower(c);
  }
  return name;
}

CsvReader::CsvReader(std::string_view text, std::string_view source,
                     absl::Status& status)
    : lines_(text), source_(source), status_(status) {
  ReadHeader();
  for (const TextField& field : fields_) {
    names_.push_back(ColumnName(field.text));
    if (names_.back().empty()) continue;
    if (std::count(names_.begin(), names_.end(), names_.back()) > 1) {
      Reader().Fail(field, StrCat("column ", QuoteToml(field.text),
                                  " is there twice; rename one"));
    }
  }
}

// The first line that is no comment. Where that has a number in it, it is a row
// already, and the comment above it the header.
void CsvReader::ReadHeader() {
  std::optional<TextLine> comment;
  std::optional<TextLine> line = lines_.Next();
  TextLines rows = lines_;  // behind `comment`
  while (line.has_value() && IsComment(*line)) {
    comment = line;
    rows = lines_;
    line = lines_.Next();
  }
  if (!line.has_value()) return;
  separator_ = SeparatorOf(line->text);
  ReadLine(*line);
  const size_t count = fields_.size();
  const bool is_row = std::ranges::any_of(fields_, [](const TextField& field) {
    return ParseNumber(field.text).has_value();
  });
  if (comment.has_value() && is_row) {
    const TextLine first = *line;
    comment->text.remove_prefix(
        std::min(comment->text.find_first_not_of("# "), comment->text.size()));
    ReadLine(*comment);
    if (fields_.size() == count) {
      lines_ = rows;
    } else {
      ReadLine(first);
    }
  }
  header_ = line_;
}

size_t CsvReader::FindColumn(std::initializer_list<std::string_view> names) {
  asked_for_.push_back(*names.begin());
  other_names_.insert(other_names_.end(), names.begin() + 1, names.end());
  for (const std::string_view name : names) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) continue;
    found_.push_back(static_cast<size_t>(found - names_.begin()));
    return found_.back();
  }
  return kNoColumn;
}

size_t CsvReader::RequireColumn(std::initializer_list<std::string_view> names) {
  const size_t column = FindColumn(names);
  if (column != kNoColumn) return column;
  const std::string_view closest =
      ClosestWord(*names.begin(), {names_.begin(), names_.end()});
  std::string remedy = StrCat("rename ", QuoteToml(closest), "?");
  if (closest.empty()) {
    remedy = "name the columns in the first line";
    const char* separator = "; it may also be called ";
    for (const std::string_view name : names) {
      if (name == *names.begin()) continue;
      StrAppend(&remedy, separator, name);
      separator = ", ";
    }
  }
  FieldReader(header_, source_, status_)
      .Fail({},
            StrCat("there is no column \"", *names.begin(), "\"; ", remedy));
  return kNoColumn;
}

std::vector<std::string> CsvReader::RefuseOtherColumns(
    std::optional<std::string_view> ignored) {
  std::vector<TextField> wanted;
  SplitFields(ignored.value_or(""), ',', wanted);
  std::vector<std::string> left_out;
  for (size_t column = 0; column < names_.size(); ++column) {
    const std::string& name = names_[column];
    // Without a name it is the number of the row, as programs write it.
    if (name.empty() || std::ranges::find(found_, column) != found_.end()) {
      continue;
    }
    const bool is_ignored =
        std::ranges::any_of(wanted, [&name](const TextField& one) {
          return one.text == kAllColumns || ColumnName(one.text) == name;
        });
    if (is_ignored) {
      left_out.push_back(name);
    } else {
      RefuseColumn(column, ignored.has_value());
    }
  }
  return left_out;
}

void CsvReader::RefuseColumn(size_t column, bool may_be_ignored) {
  const std::string& name = names_[column];
  std::vector<std::string_view> known = asked_for_;
  known.insert(known.end(), other_names_.begin(), other_names_.end());
  std::string what = StrCat("unknown column ", QuoteToml(name));
  if (std::ranges::find(known, name) != known.end()) {
    what = StrCat("column ", QuoteToml(name), " says what another one says");
  } else if (const auto closest = ClosestWord(name, known); !closest.empty()) {
    StrAppend(&what, "; did you mean \"", closest, "\"?");
  } else {
    StrAppend(&what, "; the columns are ",
              absl::StrJoin(asked_for_, ", ",
                            [](std::string* out, std::string_view one) {
                              StrAppend(out, one);
                            }));
  }
  StrAppend(&what, "; rename it",
            may_be_ignored ? ", remove it, or leave it out by --ignore-columns"
                           : " or remove it");
  Reader().Fail(fields_[column], what);
}

bool CsvReader::NextRow() {
  if (!status_.ok()) return false;
  const std::optional<TextLine> line = lines_.Next();
  if (!line.has_value()) return false;
  ReadLine(*line);
  if (fields_.size() != names_.size()) {
    Reader().FailAtEnd(StrCat("the line has ", fields_.size(),
                              " fields; write ", names_.size(),
                              " as in the header"));
  }
  return status_.ok();
}

// The field between quotes that begins at `begin`, and moves `begin` behind it;
// nullopt: the quotes do not end where the field does.
std::optional<TextField> CsvReader::TakeQuoted(std::string_view line,
                                               size_t& begin) {
  const size_t first = begin;
  size_t end = line.find('"', begin + 1);
  bool has_quotes = false;
  while (end != std::string_view::npos && line.substr(end + 1, 1) == "\"") {
    has_quotes = true;
    end = line.find('"', end + 2);
  }
  if (end == std::string_view::npos) return std::nullopt;
  begin = SkipSpace(line, end + 1, separator_);
  if (begin < line.size() && line[begin] != separator_) return std::nullopt;
  std::string_view text = line.substr(first + 1, end - first - 1);
  if (has_quotes) {
    text = unquoted_.emplace_back(
        absl::StrReplaceAll(ToAbsl(text), {{"\"\"", "\""}}));
  }
  return TextField{text, first};
}

TextField CsvReader::TakePlain(std::string_view line, size_t& begin) const {
  const size_t end = std::min(line.find(separator_, begin), line.size());
  const TextField field = {WithoutSpaceAtEnd(line.substr(begin, end - begin)),
                           begin};
  begin = end;
  return field;
}

void CsvReader::ReadLine(const TextLine& line) {
  line_ = line;
  fields_.clear();
  unquoted_.clear();
  size_t begin = 0;
  while (true) {
    begin = SkipSpace(line.text, begin, separator_);
    const size_t field_begin = begin;
    if (begin < line.text.size() && line.text[begin] == '"') {
      const std::optional<TextField> field = TakeQuoted(line.text, begin);
      if (!field.has_value()) {
        return Reader().Fail(
            {.offset = field_begin},
            "the quotes do not end with the field; end them on the line, and "
            "write \"\" for a quote inside");
      }
      fields_.push_back(*field);
    } else {
      fields_.push_back(TakePlain(line.text, begin));
    }
    if (begin == line.text.size()) return;
    ++begin;
  }
}

double CsvReader::Number(size_t column, const NumberRange& range) {
  return Reader().Number(fields_[column], names_[column], range);
}

int CsvReader::Integer(size_t column, int min, int max) {
  return Reader().Integer(fields_[column], names_[column], min, max);
}

void CsvReader::Fail(size_t column, std::string_view what) {
  Reader().Fail(fields_[column], what);
}

// ---- Lists of figures ----

absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseNamedNumbers(
    std::string_view text, const NumberRange& range, std::string_view example) {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<TextField> parts;
  SplitFields(text, ',', parts);
  for (const TextField& part : parts) {
    const auto refusal = [&part](std::string_view what) {
      return absl::InvalidArgumentError(StrCat(QuoteToml(part.text), what));
    };
    const size_t equals = part.text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return refusal(StrCat(" is not NAME=NUMBER; write e.g. ", example));
    }
    const std::string name(part.text.substr(0, equals));
    const auto value = ParseNumber(part.text.substr(equals + 1));
    if (!value.has_value() || !IsWithin(*value, range)) {
      return refusal(StrCat(" has no good number; write ", Describe(range),
                            " behind \"", name, "=\""));
    }
    if (std::any_of(numbers.begin(), numbers.end(),
                    [&](const auto& other) { return other.first == name; })) {
      return refusal(" comes after another of that name; remove one");
    }
    numbers.emplace_back(name, *value);
  }
  return numbers;
}

}  // namespace gavel
