// Checked access to the fields of JSON that people write. Errors name the
// mistake and the remedy. Called by the commands and the readers of their
// files. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_JSON_FIELDS_H_
#define GAVEL_COORDINATOR_WORKLOAD_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {

// The JSON that commands read and write: keys stay in their order.

using Json = nlohmann::ordered_json;

// Looked up by key, however many there are.
using ParsedJson = nlohmann::json;

// INVALID_ARGUMENT with line and column for text that is not JSON. NaN and
// Infinity, as Python writes them, become strings.
absl::StatusOr<ParsedJson> ParseJson(std::string_view text);

// INVALID_ARGUMENT, as all errors below.
template <class... T>
absl::Status Refuse(const T&... what) {
  return absl::InvalidArgumentError(StrCat(what...));
}

// A member of an object; null where there is none, or one that is null.
const ParsedJson* FindField(const ParsedJson& object, const std::string& key);

// One that must be there. `form`: what to give.
absl::StatusOr<const ParsedJson*> Field(const ParsedJson& object,
                                        const std::string& key,
                                        ParsedJson::value_t type,
                                        std::string_view form);

// Finite numbers. `what`: the field, for the error.
absl::StatusOr<double> Number(const ParsedJson& value, std::string_view what);
absl::StatusOr<double> NotNegative(const ParsedJson& value,
                                   std::string_view what);
absl::StatusOr<double> Positive(const ParsedJson& value, std::string_view what);
absl::StatusOr<int64_t> Whole(const ParsedJson& value, std::string_view what,
                              int64_t least, int64_t most);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_JSON_FIELDS_H_
