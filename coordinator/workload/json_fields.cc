#include "coordinator/workload/json_fields.h"

#include <cmath>

#include "core/status.h"

namespace gavel {

namespace {

absl::StatusOr<ParsedJson> Parse(std::string_view text) {
  try {
    return ParsedJson::parse(text);
  } catch (const ParsedJson::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = error.what();
    const size_t end = what.find("] ");
    return Refuse(end == std::string_view::npos ? what : what.substr(end + 2));
  }
}

// NaN and Infinity, which Python writes and JSON lacks, as strings.
std::string WithQuotedWords(std::string_view text) {
  std::string result;
  bool in_string = false;
  while (!text.empty()) {
    size_t taken = 1;
    if (in_string && text[0] == '\\') taken = 2;
    if (text[0] == '"') in_string = !in_string;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_string && text.starts_with(word)) taken = word.size();
    }
    const std::string_view part = text.substr(0, taken);
    const bool word = !in_string && part.size() > 1;
    StrAppend(&result, word ? "\"" : "", part, word ? "\"" : "");
    text.remove_prefix(part.size());
  }
  return result;
}

}  // namespace

absl::StatusOr<ParsedJson> ParseJson(std::string_view text) {
  absl::StatusOr<ParsedJson> json = Parse(text);
  if (json.ok()) return json;
  // The reader of the field then names it in the error.
  absl::StatusOr<ParsedJson> quoted = Parse(WithQuotedWords(text));
  return quoted.ok() ? quoted : json;
}

const ParsedJson* FindField(const ParsedJson& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<const ParsedJson*> Field(const ParsedJson& object,
                                        const std::string& key,
                                        ParsedJson::value_t type,
                                        std::string_view form) {
  const ParsedJson* field = FindField(object, key);
  if (field == nullptr) return Refuse(key, " is missing; give ", form);
  if (field->type() == type) return field;
  return Refuse(key, " is ", field->type_name(), "; give ", form);
}

absl::StatusOr<double> Number(const ParsedJson& value, std::string_view what) {
  if (value.is_string()) {
    return Refuse(what, " is ", value.dump(), "; give a number");
  }
  if (!value.is_number()) {
    return Refuse(what, " is ", value.type_name(), "; give a number");
  }
  const double number = value.get<double>();
  if (std::isfinite(number)) return number;
  return Refuse(what, " is not a finite number; give one below 1e308");
}

absl::StatusOr<double> NotNegative(const ParsedJson& value,
                                   std::string_view what) {
  GAVEL_ASSIGN_OR_RETURN(const double number, Number(value, what));
  if (number >= 0) return number;
  return Refuse(what, " is ", number, "; give 0 or more");
}

absl::StatusOr<double> Positive(const ParsedJson& value,
                                std::string_view what) {
  GAVEL_ASSIGN_OR_RETURN(const double number, Number(value, what));
  if (number > 0) return number;
  return Refuse(what, " is ", number, "; give one above 0");
}

absl::StatusOr<int64_t> Whole(const ParsedJson& value, std::string_view what,
                              int64_t least, int64_t most) {
  GAVEL_ASSIGN_OR_RETURN(const double number, Number(value, what));
  if (number == std::floor(number) && number >= static_cast<double>(least) &&
      number <= static_cast<double>(most)) {
    return static_cast<int64_t>(number);
  }
  return Refuse(what, " is ", number, "; give a whole number from ", least,
                " to ", most);
}

}  // namespace gavel
