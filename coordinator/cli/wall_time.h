// Points in time as text, in the machine's time zone. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_WALL_TIME_H_
#define GAVEL_COORDINATOR_CLI_WALL_TIME_H_

#include <string>

#include "absl/status/statusor.h"

namespace gavel {

// "2026-11-21", "2026-11-21T18:30" or with seconds (a space will do for the T);
// "30m", "2h" and "7d" are so long before `now_s`. Seconds since 1970.
// INVALID_ARGUMENT: none of these.
absl::StatusOr<double> ParseWallTime(const std::string& text, double now_s);
// The same, but that "30m" is so long after `now_s`.
absl::StatusOr<double> ParseTimeAhead(const std::string& text, double now_s);

// "2026-11-21T18:30:05"; "-" for 0, which is "not yet".
std::string FormatWallTime(double time_s);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_WALL_TIME_H_
