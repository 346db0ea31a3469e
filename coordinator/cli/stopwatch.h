// Time since it was made, on the monotonic clock. Thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_STOPWATCH_H_
#define GAVEL_COORDINATOR_CLI_STOPWATCH_H_

#include <chrono>

namespace gavel {

class Stopwatch {
 public:
  double elapsed_s() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_STOPWATCH_H_
