// A virtual clock with things to do: gives them out in the order of time, and
// those of one time in the order in which they were added. Not thread-safe.
#ifndef GAVEL_SIMULATOR_TIMED_QUEUE_H_
#define GAVEL_SIMULATOR_TIMED_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/units.h"

namespace gavel {

template <class Task>
class TimedQueue {
 public:
  Time now() const { return now_; }
  // When the next task is due; kNever: there is none.
  Time next() const {
    return tasks_.empty() ? kNever : tasks_.front().first.first;
  }
  // A time that has passed means now. kNever: never.
  void At(Time time, Task task) {
    if (time == kNever) return;
    tasks_.emplace_back(std::pair(time > now_ ? time : now_, added_++),
                        std::move(task));
    std::push_heap(tasks_.begin(), tasks_.end(), Later);
  }
  void After(double delay_s, Task task) { At(now_ + delay_s, std::move(task)); }
  // The next task if it is due by `limit`, and the clock stands at its time;
  // nullopt when there is none, and then the clock stands at `limit`.
  std::optional<Task> Take(Time limit) {
    if (next() > limit || tasks_.empty()) {
      if (limit != kNever && limit > now_) now_ = limit;
      return std::nullopt;
    }
    now_ = next();
    std::pop_heap(tasks_.begin(), tasks_.end(), Later);
    std::optional<Task> task = std::move(tasks_.back().second);
    tasks_.pop_back();
    return task;
  }
  // All state, for checkpoints.
  template <class Q>
  static auto State(Q& queue) {
    return std::tie(queue.now_, queue.added_, queue.tasks_);
  }
  // After its State was read, from a place where the order may be any.
  void Restored() { std::make_heap(tasks_.begin(), tasks_.end(), Later); }

 private:
  // By time, and of one time in the order in which they were added.
  using Entry = std::pair<std::pair<Time, uint64_t>, Task>;
  static bool Later(const Entry& a, const Entry& b) {
    return a.first > b.first;
  }

  Time now_ = 0;
  uint64_t added_ = 0;
  std::vector<Entry> tasks_;  // a heap, the next one first
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_TIMED_QUEUE_H_
