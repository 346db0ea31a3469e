// The files of a profile: the last events of the process and the trace that is
// made of them, and scalars as TensorBoard reads them.
#ifndef GAVEL_ITERATOR_PROFILE_FILES_H_
#define GAVEL_ITERATOR_PROFILE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

// The last events of a process, for a trace: what the training thread does
// into a preallocated ring without a lock, what the runtime does (pauses,
// moves, checkpoints; any thread) into a short list. When either is full the
// oldest is dropped and counted.
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

// A TraceRing as a file in Chrome's trace event format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open. Steps, spans and boundaries are
// one row, the runtime's events another, checkpoints until they are on disk a
// third; memory is a counter. Times in microseconds since `origin_ns`, which
// lies at otherData.monotonic_origin_us of the machine's monotonic clock:
// traces of several processes can be laid beside each other. Source: "Trace
// Event Format", the Chromium project.
struct TraceOrigin {
  int rank = 0;
  int64_t origin_ns = 0;
  int64_t now_ns = 0;  // the end of what is not over yet
};

// "DIR/trace.json" of rank 3 of 4 is "DIR/trace.rank-3.json".
std::string TracePath(const std::string& path, int rank, int world_size);

std::string TraceText(const TraceRing& ring, const TraceOrigin& origin);

// Replaces the file as a whole. UNAVAILABLE: it can't be written.
absl::Status WriteTrace(const TraceRing& ring, const TraceOrigin& origin,
                        const std::string& path);

// CRC-32C (Castagnoli), and as records have it.
uint32_t Crc32c(std::string_view bytes);
uint32_t MaskedCrc32c(std::string_view bytes);

// Scalars as a TensorBoard event file: records of (length, CRC, Event, CRC), an
// Event being a protocol buffer, both written by hand.
// Source: TensorFlow's record_writer.h, event.proto and summary.proto.
//
// One thread. Written when 32 KiB came together, and by Flush.
class EventFile {
 public:
  // Opens a new file in `directory`, which is made. Scalars of `first_step` and
  // later steps in earlier files become void: a restart trains these steps
  // again. UNAVAILABLE: it can't be written.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(
      const std::string& directory, uint64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // UNAVAILABLE: the file can't be written. Then nothing is written any more.
  absl::Status AddScalar(std::string_view tag, uint64_t step, double value);
  absl::Status Flush();

 private:
  EventFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  void AddRecord(std::string_view event);

  std::string path_;
  int file_;
  std::string buffer_;
  std::string event_;  // keeps its memory
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PROFILE_FILES_H_
