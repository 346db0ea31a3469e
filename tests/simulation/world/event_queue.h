// A virtual clock that does things: a TimedQueue of functions. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_EVENT_QUEUE_H_
#define GAVEL_TESTS_SIMULATION_WORLD_EVENT_QUEUE_H_

#include <functional>

#include "core/queue.h"

namespace gavel {

class EventQueue : public TimedQueue<std::function<void()>> {
 public:
  // Runs the next task if it is due by `limit`; false when there is none, and
  // then the clock stands at `limit`.
  bool RunOne(Time limit) {
    const auto task = Take(limit);
    if (!task.has_value()) return false;
    (*task)();
    return true;
  }
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_EVENT_QUEUE_H_
