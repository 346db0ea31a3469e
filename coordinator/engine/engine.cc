#include "coordinator/engine/engine.h"

#include <utility>

#include "coordinator/engine/engine_core.h"

namespace gavel {

Engine::Engine(EngineOptions options)
    : core_(std::make_unique<engine::Core>(std::move(options))) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Actions Engine::Step(Time now, Event event) {
  return core_->Step(now, std::move(event));
}
void Engine::Reuse(Actions done) { core_->Reuse(std::move(done)); }
Time Engine::NextDeadline() const { return core_->NextDeadline(); }
void Engine::Replay(uint64_t seq, uint64_t term, Time time,
                    const Event& event) {
  core_->Replay(seq, term, time, event);
}
absl::StatusOr<std::string> Engine::Snapshot() const {
  return core_->Snapshot();
}
absl::Status Engine::Restore(std::string_view snapshot) {
  return core_->Restore(snapshot);
}

const std::map<JobId, Job>& Engine::jobs() const {
  return core_->parts().jobs.all();
}
const Job* Engine::FindJob(JobId id) const {
  return core_->parts().jobs.Find(id);
}
const Cluster& Engine::cluster() const { return core_->parts().cluster; }
const std::map<std::string, Agent, std::less<>>& Engine::agents() const {
  return core_->parts().agents.all();
}
const ThroughputMatrix& Engine::throughputs() const {
  return core_->parts().throughputs;
}
const PolicyResult& Engine::allocation() const {
  return core_->parts().allocation.result();
}
const EngineOptions& Engine::options() const {
  return core_->parts().terms.options();
}
const Operated& Engine::operated() const {
  return core_->parts().operators.operated();
}
const std::multimap<AcceleratorId, WorkerKey>& Engine::quarantined() const {
  return core_->parts().leases.quarantined();
}
JobId Engine::AccuserOf(AcceleratorId lost) const {
  return core_->parts().accusations.AccuserOf(lost);
}
JournalPosition Engine::position() const {
  return core_->parts().outbox.position();
}
bool Engine::Knows(const JournalPosition& seen) const {
  return core_->parts().outbox.Knows(seen);
}
uint64_t Engine::rounds() const { return core_->parts().round.rounds(); }
JobId Engine::next_job() const { return core_->parts().jobs.next_id(); }
Time Engine::round_ends_at() const { return core_->parts().round.ends_at(); }
bool Engine::halted() const { return core_->parts().outbox.halted(); }
Time Engine::LeaseHorizon(const Job& job) const {
  return core_->parts().round.LeaseHorizon(job);
}
Time Engine::leases_until() const {
  return core_->parts().leases.earlier_until();
}
JobShares Engine::SharesOf(JobId job, Time now) const {
  return core_->parts().ledger.SharesOf(job, now);
}
event::Received Engine::ReceivedOf(JobId job, Time now) const {
  return core_->parts().explanations.ReceivedOf(job, now);
}
Reason Engine::Why(JobId job, Time now) const {
  return core_->parts().explanations.Why(job, now);
}
Reason Engine::WhyUnranked(JobId job, Time now) const {
  return core_->parts().explanations.WhyUnranked(job, now);
}
RoundTable Engine::LineRows(Time now) const {
  return core_->parts().rows.RoundUnits(now, /*with_trials=*/false);
}
std::optional<Standstill> Engine::StandstillOf(const Job& job) const {
  return core_->parts().hang.StandstillOf(job);
}
TrialCost Engine::ProfilingAt(Time now) const {
  return core_->parts().trials.ProfilingAt(now);
}
const FailureRate& Engine::failure_rate() const {
  return core_->parts().ledger.failure_rate();
}
const AcceleratorSpeeds& Engine::speeds() const {
  return core_->parts().speeds;
}
std::string Engine::ThroughputNotes(const Job& job) const {
  return core_->parts().figures.ThroughputNotes(job);
}
bool Engine::IsStranded(const Job& job) const {
  return core_->parts().checkpoints.IsStranded(job);
}
std::string Engine::MemoryText(const Job& job) const {
  return core_->parts().memory.MemoryText(job);
}

}  // namespace gavel
