// Waits for an effect of another thread or process. Only a failing test reaches
// the limit.
#ifndef GAVEL_TESTS_SUPPORT_EVENTUALLY_H_
#define GAVEL_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace gavel::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kPatience_s = 300;
#else
inline constexpr double kPatience_s = 60;
#endif

// The time of a monotonic clock.
inline double Seconds() {
  const std::chrono::duration<double> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

// True once `done` returns true; false if it does not within `timeout_s`.
template <class Done>
bool Eventually(Done done, double timeout_s = kPatience_s) {
  const double end = Seconds() + timeout_s;
  while (!done()) {
    if (Seconds() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_EVENTUALLY_H_
