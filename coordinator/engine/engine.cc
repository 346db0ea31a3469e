#include "coordinator/engine/engine.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

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

namespace gavel::engine {
namespace {

// After a loss this many job ids are skipped. At most this many jobs are
// assumed to have been submitted since the copy of the journal that the
// coordinator starts on.
constexpr uint64_t kLostIdsMax = 10'000;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

Core::Core(EngineOptions options) : parts_(std::move(options), *this) {
  parts_.measurements.FindTableRows();
}

Actions Core::Step(Time now, Event event) {
  Parts& p = parts_;
  if (p.outbox.halted()) return {};
  const bool unsolved = p.agenda.unsolved();
  const uint64_t seq = p.outbox.seq();
  p.outbox.Fence(event);
  if (p.outbox.halted()) return p.outbox.Take();
  // A new allocation is used for a fill at once, even if the next one is on its
  // way.
  const bool answered = std::holds_alternative<event::AllocationReady>(event);
  Admit(now, event);
  const bool waits = p.agenda.fill_due() && !answered &&
                     p.solver.IsAnswerNear(now) && p.agenda.FillMayWait(now);
  if (p.agenda.fill_due() && !waits) p.rounds.Fill(now);
  if (p.agenda.memory_due()) p.memory.MakeRoom(now);
  if (p.agenda.unsolved() && !unsolved) p.agenda.NoteUnsolved(p.outbox.seq());
  p.solver.MaybeSolve(now, p.operators.operated().policy.name);
  if (p.outbox.seq() != seq) p.jobs.Prune(p.options.ended_jobs_kept);
  return p.outbox.Take();
}

Time Core::NextDeadline() const {
  const Parts& p = parts_;
  if (p.outbox.halted()) return kNever;
  return std::min({p.agenda.next_sweep(), p.agenda.fill_by(),
                   p.solver.NextDeadline(), p.round.NextDeadline()});
}

void Core::Replay(uint64_t seq, uint64_t term, Time time, const Event& event) {
  parts_.outbox.BeginReplay(seq, term);
  Apply(time, event);
  parts_.jobs.Prune(parts_.options.ended_jobs_kept);
  parts_.agenda.EndReplay();
  parts_.outbox.EndReplay();
}

// The row is journaled before the event is applied, and messages that follow
// from it wait until the row is on disk. So a coordinator that dies in between
// has promised nothing that its successor does not know. A problem for the
// policy promises nothing, and may depend on rows that are not on disk yet.
void Core::Record(Time now, Event event) {
  Outbox& outbox = parts_.outbox;
  outbox.BeginRow();
  if (auto* start = std::get_if<event::CoordinatorStarted>(&event)) {
    outbox.BeginTerm(start->term);
    parts_.terms.Tell(*start);
    if (start->after_loss) start->numbers_from = start->term;
  }
  if (!outbox.journal()) return Apply(now, event);
  const auto kept = std::make_shared<const Event>(std::move(event));
  outbox.Persist(now, kept);
  Apply(now, *kept);
}

// Takes an event that reaches the engine from outside. It is checked, then
// journaled and applied, or answered at once.
void Core::Admit(Time now, Event& event) {
  Parts& p = parts_;
  const auto hand_to = [now](auto& part) {
    return [&part, now](auto&& e) { part.Admit(now, std::move(e)); };
  };
  const auto servers = hand_to(p.servers);
  const auto desk = hand_to(p.desk);
  const auto operators = hand_to(p.operators);
  const auto record = [&](auto& e) { Record(now, std::move(e)); };
  std::visit(
      Overloaded{
          [&](event::JobSubmitted& e) {
            p.submissions.Admit(now, std::move(e));
          },
          [&](event::ServerJoined& e) { servers(e); },
          [&](event::AgentHeard& e) { servers(e); },
          [&](event::AgentLeaves& e) { servers(e); },
          [&](event::WorkerJoined& e) { desk(e); },
          [&](event::LeaseRequested& e) { desk(e); },
          [&](event::LeaseEnded& e) { desk(e); },
          [&](event::StepsReported& e) { desk(e); },
          [&](event::WorkerSaidFinished& e) { desk(e); },
          [&](event::WorkerBusy& e) { desk(e); },
          [&](event::WorkerGone& e) { desk(e); },
          [&](event::CheckpointComing& e) { p.checkpoints.Admit(now, e); },
          [&](event::JobCommanded& e) { operators(e); },
          [&](event::JobUpdated& e) { operators(e); },
          [&](event::AcceleratorsDrained& e) { operators(e); },
          [&](event::ServerForgotten& e) { operators(e); },
          [&](event::AllocationReady& e) { p.solver.Admit(now, std::move(e)); },
          [&](event::Persisted& e) { p.outbox.Persisted(e.seq); },
          [&](event::Tick&) { TakeTick(now); },
          // These events are checked where they are made.
          [&](event::CoordinatorStarted& e) { record(e); },
          [&](event::ServerLost& e) { record(e); },
          [&](event::AcceleratorLost& e) { record(e); },
          [&](event::LeaseStarted& e) { record(e); },
          [&](event::WorkerAbandoned& e) { record(e); },
          [&](event::RoundPlanned& e) { record(e); },
          [&](event::RoundStarted& e) { record(e); },
          [&](event::UnitsAssigned& e) { record(e); },
          [&](event::WorkersEvicted& e) { record(e); },
          [&](event::PricesChanged& e) { record(e); },
          [&](event::JobsResized& e) { record(e); },
          [&](event::PolicyChanged& e) { record(e); },
      },
      event);
}

// Applies a durable event. The result is a function of the journal alone: a
// restart applies the same events again, one by one.
void Core::Apply(Time now, const Event& event) {
  Parts& p = parts_;
  std::visit(
      Overloaded{
          [&](const event::CoordinatorStarted& e) { BeginTerm(now, e); },
          [&](const event::JobSubmitted& e) { p.submissions.On(now, e); },
          [&](const event::ServerJoined& e) { p.servers.On(now, e); },
          [&](const event::ServerLost& e) { p.servers.On(now, e); },
          [&](const event::WorkerJoined& e) { p.lease_events.On(now, e); },
          [&](const event::LeaseStarted& e) { p.lease_events.On(now, e); },
          [&](const event::LeaseEnded& e) { p.lease_events.On(now, e); },
          [&](const event::StepsReported& e) { p.lease_events.On(now, e); },
          [&](const event::WorkerGone& e) { p.endings.On(now, e); },
          [&](const event::WorkerAbandoned& e) { p.endings.On(now, e); },
          [&](const event::AcceleratorLost& e) { p.endings.On(now, e); },
          [&](const event::AllocationReady& e) { p.solver.On(now, e); },
          [&](const event::RoundPlanned& e) { p.rounds.On(now, e); },
          [&](const event::RoundStarted& e) { p.rounds.On(now, e); },
          [&](const event::UnitsAssigned& e) { p.rounds.On(now, e); },
          [&](const event::JobsResized& e) { p.resizing.On(now, e); },
          [&](const event::WorkersEvicted& e) { p.memory.On(now, e); },
          [&](const event::JobCommanded& e) { p.operators.On(now, e); },
          [&](const event::JobUpdated& e) { p.operators.On(now, e); },
          [&](const event::AcceleratorsDrained& e) { p.operators.On(now, e); },
          [&](const event::ServerForgotten& e) { p.operators.On(now, e); },
          [&](const event::PolicyChanged& e) { p.operators.On(now, e); },
          [&](const event::PricesChanged& e) { p.operators.On(now, e); },
          // These are not durable.
          [](const event::LeaseRequested&) {},
          [](const event::AgentHeard&) {},
          [](const event::WorkerSaidFinished&) {},
          [](const event::Persisted&) {},
          [](const event::Tick&) {},
          [](const event::CheckpointComing&) {},
          [](const event::WorkerBusy&) {},
          [](const event::AgentLeaves&) {},
      },
      event);
  // A job that shares an accelerator has a different pace with each partner.
  if (p.options.packing) p.isolated.CountChanged(now);
}

void Core::TakeTick(Time now) {
  Parts& p = parts_;
  // A fill is still waiting, so the plan does not take account of the event
  // that called for it, such as the loss of an accelerator. Plan once more.
  if (p.agenda.fill_due() && p.round.planned() && p.round.IsOver(now)) {
    p.rounds.PlanRoundAhead(now);
  }
  p.rounds.Look(now);
  if (p.round.IsOver(now)) {
    Record(now, event::RoundStarted{p.memory.ChooseTiers(now)});
    p.agenda.BeginRound();
  }
  p.solver.Retry(now);
  if (now >= p.agenda.next_sweep()) p.sweeper.Sweep(now);
}

// ---- a new term

// Every lease in the journal is assumed to run for the length of a lease, drift
// included. Workers that still hold theirs ask to renew it, and are adopted.
void Core::BeginTerm(Time now, const event::CoordinatorStarted& e) {
  Parts& p = parts_;
  p.outbox.NoteTerm(now, e.term, e.after_loss);
  // Skip the ids of lost jobs: their workers may still run, and must not be
  // taken for those of new jobs.
  if (e.after_loss) p.jobs.SkipIds(kLostIdsMax);
  if (e.numbers_from > 0) {
    p.jobs.PassLostNumbers(e.numbers_from);
    p.leases.SetLostUntil(p.terms.LeasesOver(now));
  }
  // Earlier leases last for the duration that they were granted with, which
  // TakeDurations below replaces.
  if (p.outbox.seq() > 1) {
    p.leases.SetEarlierUntil(
        std::max(p.leases.earlier_until(), p.terms.LeasesOver(now)));
  }
  p.terms.TakeDurations(now, e);
  TakeSettings(e.settings);
  p.operators.TakePolicyOf(e);
  p.agents.HearAll(now);
  p.round.ForgetPlans();
  p.changes.TouchAll();
  p.processes.RestartPace();
  const bool assigned = SetDownJobs(now);
  p.agents.DropStrangers();  // every agent says hello again
  p.trials.ForgetPlan();
  p.round.Restart(assigned ? now + p.terms.round_duration_s() : kNever);
  p.solver.Abandon(/*answer=*/false);
  p.agenda.SolveSoon();
  p.agenda.MakeRoomSoon();
  p.agenda.Due(now);
}

// True: some job is assigned accelerators.
bool Core::SetDownJobs(Time now) {
  bool assigned = false;
  for (const auto& [id, job] : parts_.jobs.live()) {
    job->gang_address.clear();
    job->gang_epoch = 0;
    assigned |= !job->assigned.empty();
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      SetDown(now, *job, static_cast<int>(rank));
    }
  }
  return assigned;
}

// Sets the fields of a worker that a restart forgets (see Worker) from what the
// journal says.
void Core::SetDown(Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const bool goes = worker.leaving ||
                    (worker.held_epoch != 0 &&
                     ((worker.held_epoch != job.epoch && !job.spec.opaque()) ||
                      MustGo(job, rank)));
  worker.asked_at = now;
  worker.lease_seq = 0;
  worker.lease_expires =
      job.spec.opaque() ? kNever : parts_.leases.earlier_until();
  worker.pause_sent_at = goes ? now : kNever;
  worker.stop_sent_at = kNever;
  worker.launch_repeated_at = kNever;
  // A worker that is leaving is not launched again.
  const bool launches = worker.process == ProcessState::kLaunching &&
                        !worker.leaving &&
                        !parts_.leases.InTheWay(job, worker) &&
                        (!job.spec.opaque() || worker.held_epoch != 0);
  worker.launch_sent_at = launches ? parts_.processes.NextLaunch(now) : kNever;
  worker.reported_at = -kNever;
  worker.last_nonce = 0;
  worker.stepped_at = now;
  worker.hung_s = 0;
}

// Adopts the settings of the term that the rows belong to, whatever settings
// this engine was made with. The rows of the throughput table are found again,
// as the file may be a different one.
void Core::TakeSettings(const event::Settings& settings) {
  if (!settings.told) return;
  parts_.terms.TakeSettings(settings);
  parts_.measurements.FindTableRows();
}

}  // namespace gavel::engine
