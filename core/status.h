// Helpers around absl::Status, for every component.
#ifndef GAVEL_CORE_STATUS_H_
#define GAVEL_CORE_STATUS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/text.h"

namespace gavel {

// The same status, its message behind "PREFIX: ". OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(prefix, ": ", status.message()));
}

}  // namespace gavel

// Returns from the function when `expression` (a Status) is not OK.
#define GAVEL_RETURN_IF_ERROR(expression)                            \
  if (absl::Status gavel_status = (expression); gavel_status.ok()) { \
  } else                                                             \
    return gavel_status

// GAVEL_ASSIGN_OR_RETURN(Message message, DecodeMessage(frame)): assigns the
// value of a StatusOr, or returns its status from the function. Two statements:
// not after an `if` without braces.
#define GAVEL_ASSIGN_OR_RETURN(left, expression)                            \
  GAVEL_ASSIGN_OR_RETURN_(GAVEL_STATUS_CONCAT_(gavel_status_or_, __LINE__), \
                          left, expression)
#define GAVEL_ASSIGN_OR_RETURN_(result, left, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).status();    \
  left = *std::move(result)
#define GAVEL_STATUS_CONCAT_(a, b) GAVEL_STATUS_CONCAT_INNER_(a, b)
#define GAVEL_STATUS_CONCAT_INNER_(a, b) a##b

#endif  // GAVEL_CORE_STATUS_H_
