// Seconds on the monotonic clock. Thread-safe.
#ifndef GAVEL_RUNTIME_FILES_STOPWATCH_H_
#define GAVEL_RUNTIME_FILES_STOPWATCH_H_

#include <chrono>

namespace gavel {

// Since an unspecified origin, the same for all processes of the machine.
inline double MonotonicNow() {
  const std::chrono::duration<double> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

// Time since it was made.
class Stopwatch {
 public:
  double elapsed_s() const { return MonotonicNow() - start_; }

 private:
  double start_ = MonotonicNow();
};

// Seconds since 1970. For people only: it may jump.
inline double WallClockNow() {
  const std::chrono::duration<double> since =
      std::chrono::system_clock::now().time_since_epoch();
  return since.count();
}

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_STOPWATCH_H_
