// Writes one JSON object field by field, straight into text: a listing of
// thousands of rows takes a few microseconds each. What it writes is what
// nlohmann::json reads; text of other bytes than printable ASCII goes through
// DumpJson. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_JSON_TEXT_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_JSON_TEXT_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/server/query/json_page.h"

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
  // Of the value that comes next; a plain name.
  void Key(std::string_view name) {
    Separate();
    text_ += '"';
    text_ += name;
    text_ += "\":";
    first_ = true;
  }

  void Value(std::string_view value) {
    Separate();
    if (std::ranges::all_of(value, IsPlain)) {
      text_ += '"';
      text_ += value;
      text_ += '"';
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
  void Field(std::string_view name, const T& value) {
    Key(name);
    Value(value);
  }
  // Whose name is somebody's text.
  template <class T>
  void TextField(std::string_view name, const T& value) {
    Value(name);
    text_ += ':';
    first_ = true;
    Value(value);
  }
  void NullField(std::string_view name) {
    Key(name);
    Null();
  }

  const std::string& text() const { return text_; }
  std::string Take() { return std::exchange(text_, {}); }

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
