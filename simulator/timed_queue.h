// A virtual clock with things to do: gives them out in the order of time, and
// those of one time in the order in which they were added. Not thread-safe.
#ifndef GAVEL_SIMULATOR_TIMED_QUEUE_H_
#define GAVEL_SIMULATOR_TIMED_QUEUE_H_

#include <algorithm>
#include <cstddef>
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
    Entry entry({time > now_ ? time : now_, added_++}, std::move(task));
    size_t place = tasks_.size();
    tasks_.emplace_back();
    for (; place > 0; place = (place - 1) / kChildren) {
      Entry& parent = tasks_[(place - 1) / kChildren];
      if (Before(parent, entry)) break;
      tasks_[place] = std::move(parent);
    }
    tasks_[place] = std::move(entry);
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
    std::optional<Task> task = std::move(tasks_.front().second);
    Entry last = std::move(tasks_.back());
    tasks_.pop_back();
    if (!tasks_.empty()) Sink(std::move(last));
    return task;
  }
  // What there is to it, for whoever writes it down.
  template <class Q>
  static auto State(Q& queue) {
    return std::tie(queue.now_, queue.added_, queue.tasks_);
  }
  // After its State was read, from a place where the order may be any.
  void Restored() {
    std::ranges::sort(tasks_, {}, &Entry::first);  // and so a heap
  }

 private:
  // By time, and of one time in the order in which they were added.
  using Entry = std::pair<std::pair<Time, uint64_t>, Task>;
  // A heap in which each has so many below it: less deep than with two, and
  // those of one parent lie side by side.
  static constexpr size_t kChildren = 4;

  static bool Before(const Entry& a, const Entry& b) {
    return a.first.first != b.first.first ? a.first.first < b.first.first
                                          : a.first.second < b.first.second;
  }
  // From the first place, which is free, to where it belongs.
  void Sink(Entry entry) {
    size_t place = 0;
    for (size_t child = 1; child < tasks_.size();
         child = kChildren * place + 1) {
      const size_t end = std::min(child + kChildren, tasks_.size());
      size_t first = child;
      for (size_t i = child + 1; i < end; ++i) {
        if (Before(tasks_[i], tasks_[first])) first = i;
      }
      if (Before(entry, tasks_[first])) break;
      tasks_[place] = std::move(tasks_[first]);
      place = first;
    }
    tasks_[place] = std::move(entry);
  }

  Time now_ = 0;
  uint64_t added_ = 0;
  std::vector<Entry> tasks_;  // a heap, the next one first
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_TIMED_QUEUE_H_
