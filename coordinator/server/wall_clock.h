#ifndef GAVEL_COORDINATOR_SERVER_WALL_CLOCK_H_
#define GAVEL_COORDINATOR_SERVER_WALL_CLOCK_H_

#include <chrono>

namespace gavel {

// Seconds since 1970. For people only: it may jump.
inline double WallClockNow() {
  const std::chrono::duration<double> since =
      std::chrono::system_clock::now().time_since_epoch();
  return since.count();
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_WALL_CLOCK_H_
