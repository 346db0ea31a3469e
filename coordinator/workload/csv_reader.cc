#include "coordinator/workload/csv_reader.h"

#include <algorithm>
#include <optional>

#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kSpace = " \t";

// From `begin` on, past spaces.
size_t SkipSpace(std::string_view line, size_t begin) {
  return std::min(line.find_first_not_of(kSpace, begin), line.size());
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// The field between quotes that begins at `begin`, and moves `begin` behind it;
// nullopt: the quotes do not end where the field does.
std::optional<TextField> TakeQuoted(std::string_view line, size_t& begin) {
  const size_t end = line.find('"', begin + 1);
  if (end == std::string_view::npos) return std::nullopt;
  const TextField field = {line.substr(begin + 1, end - begin - 1), begin};
  begin = SkipSpace(line, end + 1);
  if (begin < line.size() && line[begin] != ',') return std::nullopt;
  return field;
}

TextField TakePlain(std::string_view line, size_t& begin) {
  const size_t end = std::min(line.find(',', begin), line.size());
  const TextField field = {WithoutSpaceAtEnd(line.substr(begin, end - begin)),
                           begin};
  begin = end;
  return field;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string_view source,
                     absl::Status& status)
    : lines_(text), source_(source), status_(status) {
  const std::optional<TextLine> header = lines_.Next();
  if (!header.has_value()) return;
  header_ = *header;
  ReadLine(header_);
  for (const TextField& field : fields_) {
    if (std::count(names_.begin(), names_.end(), field.text) > 0) {
      Reader().Fail(field, StrCat("column ", QuoteToml(field.text),
                                  " is there twice; rename one"));
    }
    names_.push_back(field.text);
  }
}

size_t CsvReader::FindColumn(
    std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) {
      return static_cast<size_t>(found - names_.begin());
    }
  }
  return kNoColumn;
}

size_t CsvReader::RequireColumn(std::string_view name) {
  const size_t column = FindColumn({name});
  if (column != kNoColumn) return column;
  const std::string_view closest = ClosestWord(name, names_);
  const std::string remedy =
      closest.empty() ? std::string("name the columns in the first line")
                      : StrCat("rename ", QuoteToml(closest), "?");
  FieldReader(header_, source_, status_)
      .Fail({}, StrCat("there is no column \"", name, "\"; ", remedy));
  return kNoColumn;
}

void CsvReader::RefuseOtherColumns(
    std::initializer_list<std::string_view> known) {
  for (const TextField& field : fields_) {
    if (std::ranges::find(known, field.text) != known.end()) continue;
    std::string remedy;
    const std::string_view closest = ClosestWord(field.text, known);
    if (closest.empty()) {
      std::string_view separator = "the columns are ";
      for (const std::string_view name : known) {
        StrAppend(&remedy, separator, name);
        separator = ", ";
      }
      StrAppend(&remedy, "; rename it to one of them, or remove it");
    } else {
      remedy = StrCat("did you mean \"", closest, "\"?");
    }
    Reader().Fail(
        field, StrCat("unknown column ", QuoteToml(field.text), "; ", remedy));
  }
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

void CsvReader::ReadLine(const TextLine& line) {
  line_ = line;
  fields_.clear();
  size_t begin = 0;
  while (true) {
    begin = SkipSpace(line.text, begin);
    const size_t field_begin = begin;
    if (begin < line.text.size() && line.text[begin] == '"') {
      const std::optional<TextField> field = TakeQuoted(line.text, begin);
      if (!field.has_value()) {
        return Reader().Fail(
            {.offset = field_begin},
            "the quotes do not end with the field; write \"...\" without "
            "quotes inside");
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

}  // namespace gavel
