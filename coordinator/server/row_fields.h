// The members of a row, a plain struct, by name: for JSON (rows.h) and for
// tables (history_tables.h).
#ifndef GAVEL_COORDINATOR_SERVER_ROW_FIELDS_H_
#define GAVEL_COORDINATOR_SERVER_ROW_FIELDS_H_

#include <concepts>
#include <string_view>
#include <type_traits>

#include "nlohmann/json.hpp"

namespace gavel {

struct RowKey {
  std::string_view name;
  std::string_view json;  // ,"name":
};

// GAVEL_ROW(Type, member...) defines VisitFields(row, visit), which calls
// visit(RowKey, row.member) for each member listed, in this order. nlohmann's
// own NLOHMANN_DEFINE_TYPE would read strictly, and sort the keys.
#define GAVEL_ROW_FIELD(name)                              \
  {                                                        \
    static constexpr RowKey key{#name, ",\"" #name "\":"}; \
    visit(key, row.name);                                  \
  }
#define GAVEL_ROW(Type, ...)                                                \
  template <class Row, class Visit>                                         \
  requires std::same_as<std::remove_const_t<Row>, Type>                     \
  void VisitFields(Row& row, Visit&& visit) {                               \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(GAVEL_ROW_FIELD, __VA_ARGS__)) \
  }

template <class T>
concept IsRow = requires(T& row) {
  VisitFields(row, [](const RowKey&, auto&) {});
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ROW_FIELDS_H_
