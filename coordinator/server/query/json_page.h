// Rows as one JSON array of bounded length, for answers in pages. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_JSON_PAGE_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_JSON_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

  // One of an ordered map with ids as keys: rows above `cursor`, as many as
  // fit; where to go on, 0: that was all. Null as a row: it is left out.
  template <class Map, class RowOf>
  uint64_t AddFrom(const Map& map, uint64_t cursor, RowOf row_of) {
    uint64_t last = cursor;
    for (auto it = map.upper_bound(typename Map::key_type(cursor));
         it != map.end(); ++it) {
      const nlohmann::ordered_json row = row_of(it->second);
      if (!row.is_null() && !Add(row)) return last;
      last = it->first.value();
    }
    return 0;
  }

 private:
  std::string json_ = "[";
  size_t rows_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_JSON_PAGE_H_
