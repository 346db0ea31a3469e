// absl::Status inside, gavel::Status outside. Used by session*.cc.
#ifndef GAVEL_ITERATOR_STATUS_CONVERSION_H_
#define GAVEL_ITERATOR_STATUS_CONVERSION_H_

#include <string>

#include "absl/status/status.h"
#include "gavel/status.h"

namespace gavel::internal {

inline StatusCode ToPublicCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return StatusCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return StatusCode::kInvalidArgument;
    case absl::StatusCode::kNotFound:
      return StatusCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
      return StatusCode::kAlreadyExists;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return StatusCode::kFailedPrecondition;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return StatusCode::kUnavailable;
    case absl::StatusCode::kDataLoss:
      return StatusCode::kDataLoss;
    case absl::StatusCode::kResourceExhausted:
      return StatusCode::kResourceExhausted;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kInternal;
  }
}

inline Status ToPublic(const absl::Status& status) {
  if (status.ok()) return Status();
  return Status(ToPublicCode(status.code()), std::string(status.message()));
}

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_STATUS_CONVERSION_H_
