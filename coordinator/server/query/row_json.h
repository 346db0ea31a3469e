// Rows (rows.h) as JSON values: ToJson writes one, ReadJson reads one back.
// Large listings are written as text instead (json_text.h). Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_ROW_JSON_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_ROW_JSON_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/server/query/rows.h"
#include "nlohmann/json.hpp"

namespace gavel {

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

// False: the JSON is of another type, and the value is as it was.
template <class T>
bool Read(const Json& json, T* value) {
  if constexpr (IsRow<T>) {
    if (!json.is_object()) return false;
    // What is missing or of another type stays at its default.
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

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_ROW_JSON_H_
