// What an agent says in WorkerExited::launch_error, where the engine tells
// cases apart by it.
#ifndef GAVEL_CORE_LAUNCH_ERRORS_H_
#define GAVEL_CORE_LAUNCH_ERRORS_H_

#include <string_view>

namespace gavel {

// The coordinator ended the launch before the job's checkpoint was there.
inline constexpr std::string_view kStoppedWhileFetching =
    "stopped while its checkpoint was fetched";

}  // namespace gavel

#endif  // GAVEL_CORE_LAUNCH_ERRORS_H_
