// Where the time of the steps goes (gavel/profile.h), and what is written of
// it: a trace, TensorBoard's scalars, a table at the end.
//
// Training thread only, but for RuntimeSpan.
#ifndef GAVEL_ITERATOR_STEP_PROFILE_H_
#define GAVEL_ITERATOR_STEP_PROFILE_H_

#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gavel/profile.h"
#include "iterator/clock.h"
#include "iterator/event_file.h"
#include "iterator/step_stats.h"
#include "iterator/trace_ring.h"

namespace gavel::internal {

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

  // Of a boundary, but not the wrapper's own: a pause, a checkpoint.
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
