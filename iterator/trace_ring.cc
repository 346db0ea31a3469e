#include "iterator/trace_ring.h"

#include <algorithm>

namespace gavel::internal {

std::vector<TraceEvent> TraceRing::Events() const {
  const size_t kept = std::min<uint64_t>(count_, events_.size());
  const size_t first = count_ > events_.size() ? next_ : 0;
  std::vector<TraceEvent> events;
  events.reserve(kept);
  for (size_t i = 0; i < kept; ++i) {
    events.push_back(events_[(first + i) % events_.size()]);
  }
  return events;
}

uint64_t TraceRing::AddRuntime(const RuntimeEvent& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (runtime_events_.size() == kRuntimeEventsMax) runtime_events_.pop_front();
  runtime_events_.push_back(event);
  return ++runtime_count_;
}

void TraceRing::End(uint64_t id, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Ids rise by one, and only the front is dropped.
  const uint64_t first = runtime_count_ - runtime_events_.size() + 1;
  if (id >= first) runtime_events_[id - first].end_ns = now_ns;
}

std::vector<RuntimeEvent> TraceRing::RuntimeEvents() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {runtime_events_.begin(), runtime_events_.end()};
}

uint64_t TraceRing::runtime_dropped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return runtime_count_ - runtime_events_.size();
}

}  // namespace gavel::internal
