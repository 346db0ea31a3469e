// The measurements of a process that trains: steps and their times for the
// coordinator, where the time of the steps goes (gavel/profile.h), memory, and
// the bytes that it has read and written; and the files of a profile.
#ifndef GAVEL_ITERATOR_STEP_PROFILE_H_
#define GAVEL_ITERATOR_STEP_PROFILE_H_

#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "gavel/profile.h"
#include "iterator/clock.h"

namespace gavel::internal {

// ---- The files of a profile: the last events of the process and the trace
// that is made of them, and scalars as TensorBoard reads them.

// A name must live as long as the ring. Times are those of Now_ns().
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

// ---- The measurements.

// The bytes that this process has read and written, as the kernel counts them:
// the sum of the bytes that calls moved and that were fetched from disks for
// mapped memory, of all threads and of children that ended. It rises whenever
// the process reads or writes. 0 where the kernel does not count. Thread-safe.
uint64_t ProcessBytes();

// `text`: of /proc/PID/io.
uint64_t ParseProcessBytes(std::string_view text);

// The memory marks of a profile: what LibTorch has allocated on a GPU, or the
// resident memory of the process.
struct MemoryUse {
  int64_t now_bytes = 0;
  int64_t high_bytes = 0;  // the most since the process began
  // The same for the memory that LibTorch's allocator has from the driver,
  // which no other process can use. GPUs only.
  int64_t reserved_bytes = 0;
  int64_t reserved_high_bytes = 0;
};

// Zeros where the system does not tell. A few microseconds.
MemoryUse ReadMemory(c10::Device device) noexcept;

// Names of Report() and their last values. One writer.
class ScalarSlots {
 public:
  static constexpr size_t kCountMax = 16;
  static constexpr size_t kNameLengthMax = 64;

  // False when there is no slot left or the name is empty or too long.
  bool Set(std::string_view name, double value);
  std::vector<std::pair<std::string, double>> Read() const;

 private:
  struct Slot {
    std::array<char, kNameLengthMax> name{};
    size_t length = 0;
    std::atomic<double> value{0};
  };
  std::array<Slot, kCountMax> slots_;
  std::atomic<size_t> count_{0};  // published after the slot's name
};

// Steps, times and scalars of the running loop: written by the training thread
// at each boundary without locks or allocations, read by the lease thread for
// its reports.
class StepStats {
 public:
  // Training thread. The hot one: two relaxed stores.
  void CountStep(int64_t now_ns) {
    const int64_t running_ns = running_ns_.load(std::memory_order_relaxed);
    running_ns_.store(running_ns + (now_ns - last_boundary_ns_),
                      std::memory_order_relaxed);
    steps_done_.store(steps_done() + 1, std::memory_order_relaxed);
    last_step_ns_ = now_ns - last_boundary_ns_;
    last_boundary_ns_ = now_ns;
  }
  // Time runs from here: after a pause, a checkpoint, a first boundary.
  void MarkBoundary(int64_t now_ns) { last_boundary_ns_ = now_ns; }
  // One that ends no step.
  void CountBoundary() {
    boundaries_.store(boundaries_.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed);
  }
  // Leaves `time_ns` out of the time of the step that runs.
  void Skip(int64_t time_ns) { last_boundary_ns_ += time_ns; }
  void AddRunning(int64_t time_ns) {
    running_ns_.fetch_add(time_ns, std::memory_order_relaxed);
  }
  int64_t last_step_ns() const { return last_step_ns_; }
  void SetStepsDone(uint64_t steps) {
    steps_done_.store(steps, std::memory_order_relaxed);
  }
  void CountPause();
  void CountMove();
  void AddPausing(int64_t time_ns);
  void SetLastGeneration(Generation generation);
  // As in Progress.
  void SetMemory(uint64_t state_bytes, uint64_t device_bytes,
                 uint64_t host_bytes);
  ScalarSlots& scalars() { return scalars_; }

  // Any thread.
  uint64_t steps_done() const {
    return steps_done_.load(std::memory_order_relaxed);
  }
  int64_t running_ns() const {
    return running_ns_.load(std::memory_order_relaxed);
  }
  // All but the throughput.
  Progress Read() const;

 private:
  std::atomic<uint64_t> steps_done_{0};
  std::atomic<int64_t> running_ns_{0};
  std::atomic<uint64_t> boundaries_{0};
  int64_t last_boundary_ns_ = 0;
  int64_t last_step_ns_ = 0;
  ScalarSlots scalars_;

  mutable std::mutex mutex_;  // what changes at pauses and checkpoints only
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  int64_t pausing_ns_ = 0;
  Generation last_generation_;
  uint64_t state_bytes_ = 0;
  uint64_t device_bytes_ = 0;
  uint64_t host_bytes_ = 0;
};

// Steps per second between two looks, pauses excluded. Lease thread.
class ThroughputWindow {
 public:
  // Fills the throughput and its window. Without a finished step since the
  // last look both are 0, and the window goes on.
  void Measure(const StepStats& stats, Progress* progress);

 private:
  uint64_t steps_ = 0;
  int64_t running_ns_ = 0;
  bool begun_ = false;
};

// Where the time of the steps goes (gavel/profile.h), and its outputs: a trace,
// TensorBoard's scalars, a table at the end.
//
// Training thread only, except RuntimeSpan.
class StepProfile {
 public:
  StepProfile() {
    phases_[kData].name = "data";
    phases_[kWrapper].name = "wrapper";
  }

  // Before the first step. UNAVAILABLE: a file can't be written.
  absl::Status Open(const SessionOptions& options, uint64_t first_step);

  // ---- the hot ones: a step ended and the boundary began; the boundary ended;
  // the next batch is there. Clocks are read in measured steps only.
  void EndStep(int64_t now_ns, int64_t step_ns, uint64_t steps_done) {
    step_max_ns_ = std::max(step_max_ns_, step_ns);
    ++steps_;
    steps_ns_ += step_ns;
    if (ring_) {
      ring_->Add({"step", step_begin_ns_, now_ns, steps_done,
                  TraceEvent::Kind::kStep});
    }
    measured_ = ring_ || step_ns > kShortStep_ns || steps_done % kSampling == 0;
  }
  void BeginBoundary(int64_t now_ns) {
    boundary_begin_ns_ = now_ns;
    excluded_ns_ = 0;
  }
  void EndBoundary() {
    if (measured_) MeasureBoundary(Now_ns());
  }
  void BatchReady() {
    if (!waits_for_data_) return;
    waits_for_data_ = false;  // further micro-batches are part of the step
    AddPhase(kData, "data", step_begin_ns_, Now_ns());
  }
  void EndSpan(const char* name, int64_t begin_ns, int64_t end_ns);

  // Subtracts time of a boundary that is not the wrapper's own: a pause, a
  // checkpoint.
  void Exclude(int64_t time_ns) { excluded_ns_ += time_ns; }
  void CountCheckpoint() { ++checkpoints_; }

  // When Tick is due; never without a trace and TensorBoard.
  int64_t next_tick_ns() const { return next_tick_ns_; }
  // Memory marks and, once a second, step time and pauses as scalars. Any
  // trouble is returned once.
  absl::Status Tick(int64_t now_ns, c10::Device device, const StepStats& stats);
  absl::Status Report(std::string_view name, uint64_t step, double value);
  void MarkMemory(int64_t now_ns, c10::Device device);
  // Files as of now: at pauses and at the end.
  absl::Status Write(const StepStats& stats);

  Profile Read(const StepStats& stats) const;
  // Lines of a table; none when there was no step.
  std::vector<std::string> Table(const StepStats& stats) const;

  // Null: no trace.
  TraceRing* ring() { return ring_.get(); }

 private:
  static constexpr size_t kPhasesMax = 16;
  static constexpr size_t kData = 0;
  static constexpr size_t kWrapper = 1;
  static constexpr int64_t kShortStep_ns = 20'000;
  static constexpr uint64_t kSampling = 16;

  struct Phase {
    const char* name = nullptr;
    uint64_t count = 0;
    int64_t total_ns = 0;
    int64_t max_ns = 0;
  };

  void Count(size_t phase, int64_t time_ns) {
    Phase& one = phases_[phase];
    ++one.count;
    one.total_ns += time_ns;
    one.max_ns = std::max(one.max_ns, time_ns);
  }
  void Trace(const char* name, int64_t begin_ns, int64_t end_ns) {
    if (!ring_) return;
    ring_->Add({name, begin_ns, end_ns, 0, TraceEvent::Kind::kSpan});
  }
  void AddPhase(size_t phase, const char* name, int64_t begin_ns,
                int64_t end_ns) {
    Count(phase, end_ns - begin_ns);
    Trace(name, begin_ns, end_ns);
  }
  void MeasureBoundary(int64_t now_ns);
  // kPhasesMax when there are too many.
  size_t FindPhase(const char* name);
  void AddScalars(const StepStats& stats);
  absl::Status Keep(absl::Status status);

  std::array<Phase, kPhasesMax> phases_;
  size_t phase_count_ = 2;
  uint64_t steps_ = 0;  // of this process
  int64_t steps_ns_ = 0;
  int64_t step_max_ns_ = 0;
  uint64_t checkpoints_ = 0;
  bool measured_ = true;
  bool waits_for_data_ = false;
  int64_t step_begin_ns_ = 0;
  int64_t boundary_begin_ns_ = 0;
  int64_t excluded_ns_ = 0;
  bool on_accelerator_ = false;  // so far
  int64_t memory_low_bytes_ = 0;
  int64_t memory_high_bytes_ = 0;

  std::unique_ptr<TraceRing> ring_;
  std::string trace_path_;
  int rank_ = 0;
  int64_t origin_ns_ = 0;
  std::unique_ptr<EventFile> events_;
  int64_t next_tick_ns_ = kNever_ns;
  int64_t next_scalars_ns_ = 0;
  uint64_t scalars_steps_ = 0;
  int64_t scalars_steps_ns_ = 0;
  bool trouble_told_ = false;
};

// An event of the runtime, as long as its scope: "pause", "checkpoint". Any
// thread, `ring` may be null. `name` is a literal.
class RuntimeSpan {
 public:
  RuntimeSpan(TraceRing* ring, const char* name) : ring_(ring) {
    if (ring_ != nullptr) id_ = ring_->Begin(name, Now_ns());
  }
  ~RuntimeSpan() {
    if (ring_ != nullptr) ring_->End(id_, Now_ns());
  }
  RuntimeSpan(const RuntimeSpan&) = delete;
  RuntimeSpan& operator=(const RuntimeSpan&) = delete;

 private:
  TraceRing* ring_;
  uint64_t id_ = 0;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_STEP_PROFILE_H_
