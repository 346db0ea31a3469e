// A virtual clock with things to do: runs them in the order of time, and those
// of one time in the order in which they were added. Not thread-safe.
#ifndef GAVEL_SIMULATOR_EVENT_QUEUE_H_
#define GAVEL_SIMULATOR_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/units.h"

namespace gavel {

class EventQueue {
 public:
  Time now() const { return now_; }
  // A time that has passed means now. kNever: never.
  void At(Time time, std::function<void()> task) {
    if (time == kNever) return;
    tasks_.emplace(std::pair(time > now_ ? time : now_, next_++),
                   std::move(task));
  }
  void After(double delay_s, std::function<void()> task) {
    At(now_ + delay_s, std::move(task));
  }
  // Runs the next task if it is due by `limit`; false when there is none, and
  // then the clock stands at `limit`.
  bool RunOne(Time limit) {
    if (tasks_.empty() || tasks_.begin()->first.first > limit) {
      if (limit != kNever && limit > now_) now_ = limit;
      return false;
    }
    auto task = tasks_.extract(tasks_.begin());
    now_ = task.key().first;
    task.mapped()();
    return true;
  }

 private:
  Time now_ = 0;
  uint64_t next_ = 0;
  std::map<std::pair<Time, uint64_t>, std::function<void()>> tasks_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_EVENT_QUEUE_H_
