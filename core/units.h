// Time and durations for code that takes the time as an argument and never
// reads a clock.
#ifndef GAVEL_CORE_UNITS_H_
#define GAVEL_CORE_UNITS_H_

#include <limits>

namespace gavel {

// Seconds on the caller's monotonic clock, with an origin that the caller
// chooses.
using Time = double;

// "Never": the deadline of a state machine that waits for nothing.
inline constexpr Time kNever = std::numeric_limits<double>::infinity();

inline constexpr double kHour_s = 3600;

}  // namespace gavel

#endif  // GAVEL_CORE_UNITS_H_
