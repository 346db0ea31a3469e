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

template <class T>
nlohmann::ordered_json ToJson(const T& value);

namespace row_json {

using Json = nlohmann::ordered_json;

template <class T>
Json Write(const T& value) {
  return value;
}
template <class T>
Json Write(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json();
}
template <class T>
Json Write(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(ToJson(value));
  return list;
}
template <class T>
Json Write(const Named<T>& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = ToJson(value);
  return object;
}
template <IsRow T>
Json Write(const T& row) {
  Json object = Json::object();
  VisitFields(row, [&](const RowKey& key, const auto& member) {
    object[std::string(key.name)] = ToJson(member);
  });
  return object;
}

// False: the JSON is of another type, and the value is as it was.
inline bool Read(const Json& json, std::string* value) {
  if (json.is_string()) *value = json.get<std::string>();
  return json.is_string();
}
inline bool Read(const Json& json, bool* value) {
  if (json.is_boolean()) *value = json.get<bool>();
  return json.is_boolean();
}
inline bool Read(const Json& json, double* value) {
  if (json.is_number()) *value = json.get<double>();
  return json.is_number();
}
template <std::integral T>
bool Read(const Json& json, T* value) {
  if (!json.is_number_integer()) return false;
  const bool fits = json.is_number_unsigned()
                        ? std::in_range<T>(json.get<uint64_t>())
                        : std::in_range<T>(json.get<int64_t>());
  if (fits) *value = json.get<T>();
  return fits;
}
template <class T>
bool Read(const Json& json, std::optional<T>* value);
template <class T>
bool Read(const Json& json, std::vector<T>* values);
template <class T>
bool Read(const Json& json, Named<T>* values);

// What is missing or of another type stays at its default.
template <IsRow T>
bool Read(const Json& json, T* row) {
  if (!json.is_object()) return false;
  VisitFields(*row, [&](const RowKey& key, auto& member) {
    const auto field = json.find(std::string(key.name));
    if (field != json.end()) Read(*field, &member);
  });
  return true;
}
template <class T>
bool Read(const Json& json, std::optional<T>* value) {
  T read{};
  if (!Read(json, &read)) return false;
  *value = std::move(read);
  return true;
}
// Rows of another type are rows of defaults, other values are left out.
template <class T>
bool Read(const Json& json, std::vector<T>* values) {
  if (!json.is_array()) return false;
  for (const Json& element : json) {
    T value{};
    if (Read(element, &value) || IsRow<T>) values->push_back(std::move(value));
  }
  return true;
}
template <class T>
bool Read(const Json& json, Named<T>* values) {
  if (!json.is_object()) return false;
  for (const auto& [name, element] : json.items()) {
    T value{};
    if (Read(element, &value)) values->emplace_back(name, std::move(value));
  }
  return true;
}

}  // namespace row_json

// In the order of the members' list.
template <class T>
nlohmann::ordered_json ToJson(const T& value) {
  return row_json::Write(value);
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
