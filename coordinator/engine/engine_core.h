// What is behind the engine's door (engine.h): takes events, hands each to the
// part that it is for (parts.h), and writes all parts down as a snapshot.
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/parts.h"
#include "coordinator/engine/state/recorder.h"
#include "core/units.h"

namespace gavel::engine {

class Core final : private Recorder {
 public:
  explicit Core(EngineOptions options);

  // As Engine has them.
  Actions Step(Time now, Event event);
  void Reuse(Actions done) { parts_.outbox.Reuse(std::move(done)); }
  Time NextDeadline() const;
  void Replay(uint64_t seq, uint64_t term, Time time, const Event& event);
  absl::StatusOr<std::string> Snapshot() const;
  absl::Status Restore(std::string_view snapshot);

  // For whoever asks about the state.
  const Parts& parts() const { return parts_; }

 private:
  void Record(Time now, Event event) override;
  void Admit(Time now, Event& event);
  void Apply(Time now, const Event& event);
  void TakeTick(Time now);
  void BeginTerm(Time now, const event::CoordinatorStarted& e);
  bool SetDownJobs(Time now);
  void SetDown(Time now, Job& job, int rank);
  void TakeSettings(const event::Settings& settings);
  static auto State(auto& parts);
  absl::Status Rebuild(const std::vector<JobId>& live);

  Parts parts_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_
