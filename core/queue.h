// A queue that keeps its memory; std::deque allocates for every large element.
// Not thread-safe.
#ifndef GAVEL_CORE_QUEUE_H_
#define GAVEL_CORE_QUEUE_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace gavel {

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

}  // namespace gavel

#endif  // GAVEL_CORE_QUEUE_H_
