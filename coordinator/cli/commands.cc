#include "coordinator/cli/commands.h"

#include <cstdio>
#include <string>

namespace gavel {

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  const std::string message(status.message());
  std::fprintf(stderr, "gavel: %s\n", message.c_str());
  return kExitFailed;
}

int DaemonExitCodeOf(const absl::Status& status) {
  const int code = ExitCodeOf(status);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kAlreadyExists:
      return kExitAlreadyRuns;
    case absl::StatusCode::kAborted:
      return kExitFenced;
    case absl::StatusCode::kResourceExhausted:
      return kExitDiskFull;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    default:
      return code;
  }
}

}  // namespace gavel
