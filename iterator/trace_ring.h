// The last events of a process, for a trace: what the training thread does
// into a preallocated ring without a lock, what the runtime does (pauses,
// moves, checkpoints; any thread) into a short list. When either is full the
// oldest is dropped and counted.
#ifndef GAVEL_ITERATOR_TRACE_RING_H_
#define GAVEL_ITERATOR_TRACE_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace gavel::internal {

// A name must live as long as the ring. Times as of Now_ns().
struct TraceEvent {
  enum class Kind : uint8_t { kSpan, kStep, kMemory };
  const char* name = nullptr;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t value = 0;  // of a step its number, of memory bytes
  Kind kind = Kind::kSpan;
};

// `end_ns` 0: not over yet.
struct RuntimeEvent {
  enum class Row { kRuntime, kWriter };  // the latter: of checkpoints, beside
  const char* name = nullptr;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  Row row = Row::kRuntime;
};

class TraceRing {
 public:
  static constexpr size_t kEventsMax = size_t{1} << 17;  // 5 MiB
  static constexpr size_t kRuntimeEventsMax = 4096;

  explicit TraceRing(size_t events_max = kEventsMax) : events_(events_max) {}

  // Training thread.
  void Add(const TraceEvent& event) {
    events_[next_] = event;
    next_ = next_ + 1 == events_.size() ? 0 : next_ + 1;
    ++count_;
  }
  // The oldest first.
  std::vector<TraceEvent> Events() const;
  uint64_t dropped() const {
    return count_ > events_.size() ? count_ - events_.size() : 0;
  }

  // Any thread. The result is for End.
  uint64_t AddRuntime(const RuntimeEvent& event);
  uint64_t Begin(const char* name, int64_t now_ns) {
    return AddRuntime(
        RuntimeEvent{name, now_ns, 0, RuntimeEvent::Row::kRuntime});
  }
  void End(uint64_t id, int64_t now_ns);
  std::vector<RuntimeEvent> RuntimeEvents() const;
  uint64_t runtime_dropped() const;

 private:
  std::vector<TraceEvent> events_;
  size_t next_ = 0;
  uint64_t count_ = 0;

  mutable std::mutex mutex_;
  std::deque<RuntimeEvent> runtime_events_;
  uint64_t runtime_count_ = 0;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACE_RING_H_
