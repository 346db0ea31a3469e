// Texts by which agents and workers report why a worker ended
// (WorkerExited::launch_error, WorkerFinished::detail) and which the reader of
// the report tests to distinguish the cases.
#ifndef GAVEL_CORE_LAUNCH_ERRORS_H_
#define GAVEL_CORE_LAUNCH_ERRORS_H_

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/text.h"

namespace gavel {

// The coordinator ended the launch while the job's checkpoint was being
// fetched.
inline constexpr std::string_view kStoppedWhileFetching =
    "stopped while its checkpoint was fetched";

// Whether `detail` reports a lack of memory, in the words of LibTorch and the
// drivers: "CUDA out of memory. Tried to allocate …",
// "CUBLAS_STATUS_ALLOC_FAILED when calling …".
inline bool TellsOutOfMemory(std::string_view detail) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(detail));
  return absl::StrContains(lower, "out of memory") ||
         absl::StrContains(lower, "_status_alloc_failed");
}

}  // namespace gavel

#endif  // GAVEL_CORE_LAUNCH_ERRORS_H_
