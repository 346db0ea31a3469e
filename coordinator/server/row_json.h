// Rows (rows.h) as JSON. ToJson and ReadJson convert between rows and JSON
// values; JsonText writes large listings directly as text; JsonPage collects
// rows into an answer of bounded length.
#ifndef GAVEL_COORDINATOR_SERVER_ROW_JSON_H_
#define GAVEL_COORDINATOR_SERVER_ROW_JSON_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/server/rows.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {

// A page holds rows up to this many bytes (and always one).
inline constexpr size_t kPageBytesMax = 48 * 1024;

// Bytes from elsewhere need not be UTF-8; what is not is replaced.
inline std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

// Rows as one JSON array of bounded length, for answers in pages. Not
// thread-safe.
class JsonPage {
 public:
  // False: the page is full, the row was not taken.
  bool Add(const nlohmann::ordered_json& row) { return AddText(DumpJson(row)); }
  // `text`: JSON of one row.
  bool AddText(std::string_view text) {
    if (rows_ > 0 && json_.size() + text.size() + 2 > kPageBytesMax) {
      return false;
    }
    StrAppend(&json_, rows_ == 0 ? "" : ",", text);
    ++rows_;
    return true;
  }
  std::string Take() { return json_ + "]"; }

 private:
  std::string json_ = "[";
  size_t rows_ = 0;
};

// Writes JSON directly as text, field by field or a whole row (rows.h): a
// listing of thousands of rows takes a few microseconds for each.
// nlohmann::json can read the result; text with bytes other than printable
// ASCII goes through DumpJson. Not thread-safe.
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

// Rows (rows.h) as JSON values: ToJson writes one, ReadJson reads one back.
// Large listings are written as text instead (JsonText). Pure, thread-safe.
namespace row_json {

using Json = nlohmann::ordered_json;

template <class T>
concept IsOptional = requires(T& value) {
  value.emplace();
  value.reset();
};
template <class T>
concept IsNamed = requires {
  typename T::value_type::second_type;
};
template <class T>
concept IsList = !std::same_as<T, std::string> && !IsNamed<T> && requires {
  typename T::value_type;
  typename T::reverse_iterator;
};

// Returns false when the JSON has another type; the value is then unchanged.
template <class T>
bool Read(const Json& json, T* value) {
  if constexpr (IsRow<T>) {
    if (!json.is_object()) return false;
    // A member that is missing or has another type keeps its default.
    VisitFields(*value, [&](const RowKey& key, auto& member) {
      const auto field = json.find(std::string(key.name));
      if (field != json.end()) Read(*field, &member);
    });
  } else if constexpr (IsNamed<T>) {
    if (!json.is_object()) return false;
    for (const auto& [name, element] : json.items()) {
      typename T::value_type::second_type read{};
      if (Read(element, &read)) value->emplace_back(name, std::move(read));
    }
  } else if constexpr (IsList<T>) {
    if (!json.is_array()) return false;
    // Rows of another type are rows of defaults, other values are left out.
    using Element = typename T::value_type;
    for (const Json& element : json) {
      Element read{};
      if (Read(element, &read) || IsRow<Element>) {
        value->push_back(std::move(read));
      }
    }
  } else if constexpr (IsOptional<T>) {
    typename T::value_type read{};
    if (!Read(json, &read)) return false;
    *value = std::move(read);
  } else {
    bool right = false;
    if constexpr (std::same_as<T, std::string>) {
      right = json.is_string();
    } else if constexpr (std::same_as<T, bool>) {
      right = json.is_boolean();
    } else if constexpr (std::same_as<T, double>) {
      right = json.is_number();
    } else if (json.is_number_unsigned()) {
      right = std::in_range<T>(json.get<uint64_t>());
    } else if (json.is_number_integer()) {
      right = std::in_range<T>(json.get<int64_t>());
    }
    if (right) *value = json.get<T>();
    return right;
  }
  return true;
}

}  // namespace row_json

// In the order of the members' list.
template <class T>
nlohmann::ordered_json ToJson(const T& value) {
  if constexpr (IsRow<T>) {
    auto object = row_json::Json::object();
    VisitFields(value, [&](const RowKey& key, const auto& member) {
      object[std::string(key.name)] = ToJson(member);
    });
    return object;
  } else if constexpr (row_json::IsNamed<T>) {
    auto object = row_json::Json::object();
    for (const auto& [name, element] : value) object[name] = ToJson(element);
    return object;
  } else if constexpr (row_json::IsList<T>) {
    auto list = row_json::Json::array();
    for (const auto& element : value) list.push_back(ToJson(element));
    return list;
  } else if constexpr (row_json::IsOptional<T>) {
    return value ? ToJson(*value) : row_json::Json();
  } else {
    return value;
  }
}

// A row, or a list of rows, of a coordinator that may be older or newer: what
// is missing or of another type is left at its default.
template <class T>
T ReadJson(const nlohmann::ordered_json& json) {
  T value{};
  row_json::Read(json, &value);
  return value;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ROW_JSON_H_
