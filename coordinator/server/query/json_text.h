// Writes JSON directly as text, field by field or a whole row (rows.h): a
// listing of thousands of rows takes a few microseconds for each.
// nlohmann::json reads what it writes; text of other bytes than printable ASCII
// goes through DumpJson. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_JSON_TEXT_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_JSON_TEXT_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/rows.h"

namespace gavel {

class JsonText {
 public:
  void Begin(char bracket) {
    Separate();
    text_ += bracket;
    first_ = true;
  }
  void End(char bracket) {
    text_ += bracket;
    first_ = false;
  }

  void Value(std::string_view value) {
    Separate();
    if (std::ranges::all_of(value, IsPlain)) {
      const size_t begin = text_.size();
      text_.resize(begin + value.size() + 2, '"');
      std::ranges::copy(value, text_.begin() + begin + 1);
    } else {
      text_ += DumpJson(nlohmann::ordered_json(std::string(value)));
    }
  }
  void Value(const std::string& value) { Value(std::string_view(value)); }
  void Value(const char*) = delete;
  void Value(bool value) {
    Separate();
    text_ += value ? "true" : "false";
  }
  void Value(double value) {
    if (!std::isfinite(value)) return Null();
    Number(value);
  }
  template <std::integral T>
  void Value(T value) {
    Number(value);
  }
  void Null() {
    Separate();
    text_ += "null";
  }
  template <class T>
  void Value(const std::optional<T>& value) {
    value ? Value(*value) : Null();
  }
  template <class T>
  void Value(const std::vector<T>& values) {
    Begin('[');
    for (const T& value : values) Value(value);
    End(']');
  }
  template <class T>
  void Value(const Named<T>& values) {
    Begin('{');
    for (const auto& [name, value] : values) Field(name, value);
    End('}');
  }
  template <IsRow T>
  void Value(const T& row) {
    Begin('{');
    VisitFields(row, [this](const RowKey& key, const auto& member) {
      text_ += first_ ? key.json.substr(1) : key.json;
      first_ = true;
      Value(member);
    });
    End('}');
  }

  template <class T>
  void Field(std::string_view name, const T& value) {
    Value(name);
    text_ += ':';
    first_ = true;
    Value(value);
  }

  const std::string& text() const { return text_; }
  std::string Take() { return std::exchange(text_, {}); }
  // For the next value; keeps the memory.
  void Clear() {
    text_.clear();
    first_ = true;
  }

 private:
  static bool IsPlain(char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  }
  void Separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  template <class T>
  void Number(T value) {
    Separate();
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value);
    text_.append(digits, end.ptr);
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_JSON_TEXT_H_
