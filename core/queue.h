// Queues: one that keeps its memory, and one in the order of time. Not
// thread-safe.
#ifndef GAVEL_CORE_QUEUE_H_
#define GAVEL_CORE_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/units.h"

namespace gavel {

// Keeps its memory; std::deque allocates for every large element.
template <class T>
class Queue {
 public:
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  // The oldest element. The queue must not be empty.
  const T& front() const { return items_[head_]; }
  T Pop() {
    T item = std::move(items_[head_++]);
    if (empty()) clear();
    return item;
  }
  template <class... Arguments>
  void Push(Arguments&&... arguments) {
    // Instead of growing, moves the remaining elements to the front.
    if (items_.size() == items_.capacity() && head_ > items_.size() / 2) {
      items_.erase(items_.begin(),
                   items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    items_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0;  // the oldest; elements before it were popped
};

// A virtual clock with things to do: gives them out in the order of time, and
// those of one time in the order in which they were added.
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

#endif  // GAVEL_CORE_QUEUE_H_
