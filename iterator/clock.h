// The process's monotonic clock, in the two units in use: nanoseconds at the
// boundary, seconds for the lease machine. Same origin.
#ifndef GAVEL_ITERATOR_CLOCK_H_
#define GAVEL_ITERATOR_CLOCK_H_

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/units.h"

namespace gavel::internal {

inline constexpr int64_t kNever_ns = std::numeric_limits<int64_t>::max();

inline int64_t ToNanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

inline int64_t Now_ns() {
  return ToNanoseconds(std::chrono::steady_clock::now());
}

inline double ToSeconds(int64_t time_ns) {
  return static_cast<double>(time_ns) * 1e-9;
}

// Far away is never.
inline int64_t ToNanoseconds(double time_s) {
  return time_s > 9e9 ? kNever_ns : std::llround(time_s * 1e9);
}

inline Time Now() { return ToSeconds(Now_ns()); }

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_CLOCK_H_
