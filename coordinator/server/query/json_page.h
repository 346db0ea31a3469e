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

 private:
  std::string json_ = "[";
  size_t rows_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_JSON_PAGE_H_
