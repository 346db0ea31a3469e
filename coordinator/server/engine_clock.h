// Seconds of the engine: goes on where the journal ended, so that the time
// without a coordinator does not count, and never goes back. A value.
#ifndef GAVEL_COORDINATOR_SERVER_ENGINE_CLOCK_H_
#define GAVEL_COORDINATOR_SERVER_ENGINE_CLOCK_H_

#include <chrono>

#include "core/units.h"

namespace gavel {

class EngineClock {
 public:
  explicit EngineClock(Time start) : start_(start) {}
  Time Now() const {
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - started_;
    return start_ + elapsed.count();
  }

 private:
  Time start_;
  std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ENGINE_CLOCK_H_
