// A virtual clock with things to do: gives them out in the order of time, and
// those of one time in the order in which they were added. Not thread-safe.
#ifndef GAVEL_SIMULATOR_TIMED_QUEUE_H_
#define GAVEL_SIMULATOR_TIMED_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/units.h"

namespace gavel {

template <class Task>
class TimedQueue {
 public:
  Time now() const { return now_; }
  // When the next task is due; kNever: there is none.
  Time next() const {
    return tasks_.empty() ? kNever : tasks_.begin()->first.first;
  }
  // A time that has passed means now. kNever: never.
  void At(Time time, Task task) {
    if (time == kNever) return;
    tasks_.emplace(std::pair(time > now_ ? time : now_, added_++),
                   std::move(task));
  }
  void After(double delay_s, Task task) { At(now_ + delay_s, std::move(task)); }
  // The next task if it is due by `limit`, and the clock stands at its time;
  // nullopt when there is none, and then the clock stands at `limit`.
  std::optional<Task> Take(Time limit) {
    if (next() > limit || tasks_.empty()) {
      if (limit != kNever && limit > now_) now_ = limit;
      return std::nullopt;
    }
    auto task = tasks_.extract(tasks_.begin());
    now_ = task.key().first;
    return std::move(task.mapped());
  }
  // What there is to it, for whoever writes it down.
  template <class Q>
  static auto State(Q& queue) {
    return std::tie(queue.now_, queue.added_, queue.tasks_);
  }

 private:
  Time now_ = 0;
  uint64_t added_ = 0;
  std::map<std::pair<Time, uint64_t>, Task> tasks_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_TIMED_QUEUE_H_
