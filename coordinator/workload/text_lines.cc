#include "coordinator/workload/text_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>

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

}  // namespace gavel
