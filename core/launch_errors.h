// What agents and workers say of their ends (WorkerExited::launch_error,
// WorkerFinished::detail), where cases are told apart by it.
#ifndef GAVEL_CORE_LAUNCH_ERRORS_H_
#define GAVEL_CORE_LAUNCH_ERRORS_H_

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/text.h"

namespace gavel {

// The coordinator ended the launch before the job's checkpoint was there.
inline constexpr std::string_view kStoppedWhileFetching =
    "stopped while its checkpoint was fetched";

// LibTorch's and the drivers' words: "CUDA out of memory. Tried to allocate …".
inline bool TellsOutOfMemory(std::string_view detail) {
  return absl::StrContains(absl::AsciiStrToLower(ToAbsl(detail)),
                           "out of memory");
}

}  // namespace gavel

#endif  // GAVEL_CORE_LAUNCH_ERRORS_H_
