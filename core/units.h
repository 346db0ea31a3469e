// Time and durations as the pure parts see them: an argument, never a call.
#ifndef GAVEL_CORE_UNITS_H_
#define GAVEL_CORE_UNITS_H_

#include <limits>

namespace gavel {

// Seconds on the monotonic clock of whoever calls; the origin is the caller's.
using Time = double;

// "Never": the deadline of a machine that waits for nothing.
inline constexpr Time kNever = std::numeric_limits<double>::infinity();

inline constexpr double kHour_s = 3600;

}  // namespace gavel

#endif  // GAVEL_CORE_UNITS_H_
