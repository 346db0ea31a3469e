// Requests that wait for an answer from elsewhere (the journal, an agent), by a
// handle of our own. The coordinator's event loop owns one of each kind. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_PENDING_TABLE_H_
#define GAVEL_COORDINATOR_SERVER_PENDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/units.h"

namespace gavel {

template <class T>
class PendingTable {
 public:
  explicit PendingTable(size_t entries_max) : entries_max_(entries_max) {}

  // A new handle, never 0 and never used before. Nothing when the table is
  // full: refuse the request. `now` never falls.
  std::optional<uint64_t> Add(Time now, T value) {
    if (entries_.size() >= entries_max_) return std::nullopt;
    entries_.emplace(++last_handle_, Entry{now, std::move(value)});
    return last_handle_;
  }

  const T* Find(uint64_t handle) const {
    const auto it = entries_.find(handle);
    return it == entries_.end() ? nullptr : &it->second.value;
  }

  std::optional<T> Take(uint64_t handle) {
    auto node = entries_.extract(handle);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped().value);
  }

  // The oldest entry, if it was added before `limit`.
  std::optional<T> TakeOlderThan(Time limit) {
    if (entries_.empty() || entries_.begin()->second.since >= limit) {
      return std::nullopt;
    }
    return Take(entries_.begin()->first);
  }

  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Time since = 0;
    T value;
  };
  size_t entries_max_;
  uint64_t last_handle_ = 0;
  std::map<uint64_t, Entry> entries_;  // handles rise with time
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_PENDING_TABLE_H_
