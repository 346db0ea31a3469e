#include "coordinator/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/apps.h"
#include "coordinator/engine/explanations.h"
#include "coordinator/engine/fields.h"
#include "coordinator/engine/interactive.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/leases.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/memory_plan.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/workers.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// After a loss this many job ids are skipped. At most this many, elements of
// arrays included, are assumed to have been given since the copy of the journal
// that the coordinator starts on.
constexpr uint64_t kLostIdsMax = 1'000'000;
// The number of earlier versions, whose rows do not name it.
constexpr uint64_t kFormerLostIdsMax = 10'000;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

static void Apply(State& s, Time now, const Event& event);
static void TakeTick(State& s, Time now);
static void BeginTerm(State& s, Time now, const event::CoordinatorStarted& e);
static bool SetDownJobs(State& s, Time now);
static void SetDown(State& s, Time now, Job& job, int rank);
static void TakeSettings(State& s, const event::Settings& settings);

// The row is journaled before the event is applied, and messages that follow
// from it wait until the row is on disk. So a coordinator that dies in between
// has promised nothing that its successor does not know. A problem for the
// policy promises nothing, and may depend on rows that are not on disk yet.
void Record(State& s, Time now, Event event) {
  Outbox& outbox = s.outbox;
  outbox.BeginRow();
  if (auto* start = std::get_if<event::CoordinatorStarted>(&event)) {
    outbox.BeginTerm(start->term);
    s.terms.Tell(*start);
    if (start->after_loss) {
      start->numbers_from = start->term;
      start->ids_skipped = kLostIdsMax;
    }
  }
  if (!outbox.journal()) return Apply(s, now, event);
  const auto kept = std::make_shared<const Event>(std::move(event));
  outbox.Persist(now, kept);
  Apply(s, now, *kept);
}

// Takes an event that reaches the engine from outside. It is checked, then
// journaled and applied, or answered at once.
static void TakeEvent(State& s, Time now, Event& event) {
  const auto admit = [&](auto& e) { Admit(s, now, std::move(e)); };
  const auto record = [&](auto& e) { Record(s, now, std::move(e)); };
  std::visit(
      Overloaded{
          [&](event::JobSubmitted& e) { admit(e); },
          [&](event::ServerJoined& e) { admit(e); },
          [&](event::AgentHeard& e) { admit(e); },
          [&](event::AgentLeaves& e) { admit(e); },
          [&](event::WorkerJoined& e) { admit(e); },
          [&](event::LeaseRequested& e) { admit(e); },
          [&](event::LeaseEnded& e) { admit(e); },
          [&](event::StepsReported& e) { admit(e); },
          [&](event::WorkerSaidFinished& e) { admit(e); },
          [&](event::WorkerBusy& e) { admit(e); },
          [&](event::WorkerGone& e) { admit(e); },
          [&](event::CheckpointComing& e) { s.checkpoints.Admit(now, e); },
          [&](event::JobCommanded& e) { admit(e); },
          [&](event::JobUpdated& e) { admit(e); },
          [&](event::AcceleratorsDrained& e) { admit(e); },
          [&](event::ServerForgotten& e) { admit(e); },
          [&](event::AllocationReady& e) { admit(e); },
          [&](event::BidderJoined& e) { admit(e); },
          [&](event::BidReceived& e) { admit(e); },
          [&](event::ShareDivided& e) { admit(e); },
          [&](event::AppGoalSet& e) { admit(e); },
          [&](event::TerminalUsed& e) { admit(e); },
          [&](event::ProcessBegan& e) { admit(e); },
          [&](event::Persisted& e) { s.outbox.Persisted(e.seq); },
          [&](event::Tick&) { TakeTick(s, now); },
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
          [&](event::TrialsNoted& e) { record(e); },
          [&](event::TimeReached& e) { record(e); },
          [&](event::ParentsEnded& e) { record(e); },
      },
      event);
}

// Applies a durable event. The result is a function of the journal alone: a
// restart applies the same events again, one by one.
void Apply(State& s, Time now, const Event& event) {
  std::visit(
      Overloaded{
          [&](const event::CoordinatorStarted& e) { BeginTerm(s, now, e); },
          [&](const event::JobSubmitted& e) { On(s, now, e); },
          [&](const event::ServerJoined& e) { On(s, now, e); },
          [&](const event::ServerLost& e) { On(s, now, e); },
          [&](const event::WorkerJoined& e) { On(s, now, e); },
          [&](const event::LeaseStarted& e) { On(s, now, e); },
          [&](const event::LeaseEnded& e) { On(s, now, e); },
          [&](const event::StepsReported& e) { On(s, now, e); },
          [&](const event::WorkerGone& e) { On(s, now, e); },
          [&](const event::WorkerAbandoned& e) { On(s, now, e); },
          [&](const event::AcceleratorLost& e) { On(s, now, e); },
          [&](const event::AllocationReady& e) { On(s, now, e); },
          [&](const event::RoundPlanned& e) { On(s, now, e); },
          [&](const event::RoundStarted& e) { On(s, now, e); },
          [&](const event::UnitsAssigned& e) { On(s, now, e); },
          [&](const event::JobsResized& e) { On(s, now, e); },
          [&](const event::WorkersEvicted& e) { On(s, now, e); },
          [&](const event::JobCommanded& e) { On(s, now, e); },
          [&](const event::JobUpdated& e) { On(s, now, e); },
          [&](const event::AcceleratorsDrained& e) { On(s, now, e); },
          [&](const event::ServerForgotten& e) { On(s, now, e); },
          [&](const event::PolicyChanged& e) { On(s, now, e); },
          [&](const event::PricesChanged& e) { On(s, now, e); },
          [&](const event::TrialsNoted& e) { On(s, now, e); },
          [&](const event::TimeReached& e) { On(s, now, e); },
          [&](const event::ParentsEnded& e) { On(s, now, e); },
          [&](const event::AppGoalSet& e) { On(s, now, e); },
          // These are not durable.
          [](const event::LeaseRequested&) {},
          [](const event::AgentHeard&) {},
          [](const event::WorkerSaidFinished&) {},
          [](const event::Persisted&) {},
          [](const event::Tick&) {},
          [](const event::CheckpointComing&) {},
          [](const event::WorkerBusy&) {},
          [](const event::AgentLeaves&) {},
          [](const event::BidderJoined&) {},
          [](const event::BidReceived&) {},
          [](const event::ShareDivided&) {},
          [](const event::TerminalUsed&) {},
          [](const event::ProcessBegan&) {},
      },
      event);
  // A job that shares an accelerator has a different pace with each partner.
  if (s.options.packing || s.options.introspection) {
    s.isolated.CountChanged(now);
  }
}

// Returns whether the round that starts at this very instant waits for a policy
// that chooses for each round anew. That is so only without a planning lead, in
// simulations, where the answer takes no time.
bool AwaitsChoice(const State& s, Time now) {
  return now == s.round.ends_at() && s.round.planned() &&
         s.allocation.result().each_round && IsAnswerNear(s, now);
}

void TakeTick(State& s, Time now) {
  // A fill is still waiting, so the plan does not take account of the event
  // that called for it, such as the loss of an accelerator. Plan once more.
  if (s.agenda.fill_due() && s.round.planned() && s.round.IsOver(now)) {
    PlanRoundAhead(s, now);
  }
  Look(s, now);
  if (s.round.IsOver(now) && !AwaitsChoice(s, now)) {
    Record(s, now, event::RoundStarted{ChooseTiers(s, now)});
    s.agenda.BeginRound();
  }
  Retry(s, now);
  if (now >= s.agenda.next_sweep()) Sweep(s, now);
}

// ---- a new term

// Every lease in the journal is assumed to run for the length of a lease, drift
// included. Workers that still hold theirs ask to renew it, and are adopted.
void BeginTerm(State& s, Time now, const event::CoordinatorStarted& e) {
  s.outbox.NoteTerm(now, e.term, e.after_loss);
  // Skip the ids of lost jobs: their workers may still run, and must not be
  // taken for those of new jobs.
  if (e.after_loss) {
    s.jobs.SkipIds(e.ids_skipped > 0 ? e.ids_skipped : kFormerLostIdsMax);
  }
  if (e.numbers_from > 0) {
    s.jobs.PassLostNumbers(e.numbers_from);
    s.leases.SetLostUntil(s.terms.LeasesOver(now));
  }
  // Earlier leases last for the duration that they were granted with, which
  // TakeDurations below replaces.
  if (s.outbox.seq() > 1) {
    s.leases.SetEarlierUntil(
        std::max(s.leases.earlier_until(), s.terms.LeasesOver(now)));
  }
  s.terms.TakeDurations(now, e);
  TakeSettings(s, e.settings);
  TakePolicyOf(s, e);
  RebuildTimes(s);
  s.agents.HearAll(now);
  s.apps.HearAll(now);
  s.round.ForgetPlans();
  s.changes.TouchAll();
  RestartPace(s);
  const bool assigned = SetDownJobs(s, now);
  s.agents.DropStrangers();  // every agent says hello again
  s.trials.ForgetPlan();
  s.round.Restart(assigned ? now + s.terms.round_duration_s() : kNever);
  Abandon(s, /*answer=*/false);
  s.agenda.SolveSoon();
  s.agenda.MakeRoomSoon();
  s.agenda.SeatSoon();
  s.agenda.Due(now);
}

// True: some job is assigned accelerators.
bool SetDownJobs(State& s, Time now) {
  bool assigned = false;
  for (const auto& [id, job] : s.jobs.live()) {
    job->gang_address.clear();
    job->gang_epoch = 0;
    assigned |= !job->assigned.empty();
    for (size_t rank = 0; rank < job->workers.size(); ++rank) {
      SetDown(s, now, *job, static_cast<int>(rank));
    }
  }
  return assigned;
}

// Sets the fields of a worker that a restart forgets (see Worker) from what the
// journal says.
void SetDown(State& s, Time now, Job& job, int rank) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const bool goes = worker.leaving ||
                    (worker.held_epoch != 0 &&
                     ((worker.held_epoch != job.epoch && !job.spec.opaque()) ||
                      MustGo(job, rank)));
  worker.asked_at = now;
  worker.lease_seq = 0;
  worker.lease_expires = job.spec.opaque() ? kNever : s.leases.earlier_until();
  worker.pause_sent_at = goes ? now : kNever;
  worker.stop_sent_at = kNever;
  worker.launch_repeated_at = kNever;
  // A worker that is leaving is not launched again.
  const bool launches = worker.process == ProcessState::kLaunching &&
                        !worker.leaving && !s.leases.InTheWay(job, worker) &&
                        (!job.spec.opaque() || worker.held_epoch != 0);
  worker.launch_sent_at = launches ? NextLaunch(s, now) : kNever;
  worker.reported_at = -kNever;
  worker.last_nonce = 0;
  worker.stepped_at = now;
  worker.hung_s = 0;
}

// Adopts the settings of the term that the rows belong to, whatever settings
// this engine was made with. The rows of the throughput table are found again,
// as the file may be a different one.
void TakeSettings(State& s, const event::Settings& settings) {
  if (!settings.told) return;
  s.terms.TakeSettings(settings);
  FindTableRows(s);
}

}  // namespace gavel::engine

namespace gavel {

Engine::Engine(EngineOptions options)
    : state_(std::make_unique<engine::State>(std::move(options))) {
  engine::FindTableRows(*state_);
}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

void Engine::Reuse(Actions done) { state_->outbox.Reuse(std::move(done)); }

const std::map<JobId, Job>& Engine::jobs() const { return state_->jobs.all(); }
const Job* Engine::FindJob(JobId id) const { return state_->jobs.Find(id); }
const Cluster& Engine::cluster() const { return state_->cluster; }
const std::map<std::string, Agent, std::less<>>& Engine::agents() const {
  return state_->agents.all();
}
JobId Engine::LatestNamed(const std::string& owner,
                          const std::string& name) const {
  return state_->jobs.LatestNamed(NameOf(owner, name));
}
const ThroughputMatrix& Engine::throughputs() const {
  return state_->throughputs;
}
const PolicyResult& Engine::allocation() const {
  return state_->allocation.result();
}
const EngineOptions& Engine::options() const { return state_->terms.options(); }
const Operated& Engine::operated() const { return state_->operated; }
const std::multimap<AcceleratorId, WorkerKey>& Engine::quarantined() const {
  return state_->leases.quarantined();
}
JobId Engine::AccuserOf(AcceleratorId lost) const {
  return state_->accusations.AccuserOf(lost);
}
JournalPosition Engine::position() const { return state_->outbox.position(); }
bool Engine::Knows(const JournalPosition& seen) const {
  return state_->outbox.Knows(seen);
}
uint64_t Engine::rounds() const { return state_->round.rounds(); }
JobId Engine::next_job() const { return state_->jobs.next_id(); }
std::string Engine::WhyNotAdmitted(const JobSpec& spec) const {
  const auto parents = engine::FindParentsIfAdmitted(*state_, spec);
  return std::string(parents.status().message());
}
Time Engine::round_ends_at() const { return state_->round.ends_at(); }
bool Engine::halted() const { return state_->outbox.halted(); }
Time Engine::LeaseHorizon(const Job& job) const {
  return state_->round.LeaseHorizon(job);
}
Time Engine::leases_until() const { return state_->leases.earlier_until(); }
JobShares Engine::SharesOf(JobId job, Time now) const {
  return state_->ledger.SharesOf(job, now);
}
event::Received Engine::ReceivedOf(JobId job, Time now) const {
  return engine::ReceivedOf(*state_, job, now);
}
bool Engine::HasApps() const { return !state_->apps.all().empty(); }

size_t Engine::JobsOfApp(const Job& job) const {
  const engine::App* const app = state_->apps.Find(job);
  return app == nullptr ? 0 : app->jobs.size();
}
RhoProblem Engine::RhoProblemOfApp(Time now, const Job& job) const {
  return engine::RhoProblemOfApp(*state_, now, job);
}
RhoProblem Engine::EmptyRhoProblem() const {
  return engine::EmptyRhoProblem(*state_);
}
void Engine::AddToRho(const Job& job, Time now, RhoProblem& rho) const {
  engine::AddToRho(*state_, now, job, rho);
}
const AppBid* Engine::BidOf(const Job& job) const {
  const engine::App* app = state_->apps.Find(job);
  for (const AppBid& bid : state_->allocation.result().bids) {
    if (app == nullptr ? bid.app == job.id : app->jobs.contains(bid.app)) {
      return &bid;
    }
  }
  return nullptr;
}
std::string Engine::BidderText(const Job& job) const {
  return engine::BidderText(*state_, job);
}
std::optional<double> Engine::SecondsLeft(const Job& job, Time now) const {
  const double total = state_->apps.StepsOf(job);
  if (!job.active() || total <= 0 || job.workers.empty()) return std::nullopt;
  const double left =
      std::max(0.0, total - state_->figures.StepsDone(job, now));
  const double left_s = state_->figures.AloneSeconds(job, left);
  if (left > 0 && left_s == 0) return std::nullopt;
  return left_s;
}
std::optional<double> Engine::AppToCome(const Job& job) const {
  const engine::App* app = state_->apps.Find(job);
  if (app == nullptr || !app->goal.has_value()) return std::nullopt;
  const double to_come_s =
      state_->figures.AloneSeconds(job, app->goal->steps_to_come);
  if (to_come_s == 0) return std::nullopt;
  return to_come_s * job.scale_factor;
}
Reason Engine::Why(JobId job, Time now) const {
  return engine::Why(*state_, job, now);
}
Reason Engine::WhyUnranked(JobId job, Time now) const {
  return engine::WhyUnranked(*state_, job, now);
}
std::string Engine::WhyPaused(const Job& job, int rank, AcceleratorId left,
                              Time now) const {
  return engine::WhyPaused(*state_, job, rank, left, now);
}
std::string Engine::WhyMoved(const Job& job, AcceleratorId from,
                             AcceleratorId to, Time now) const {
  return engine::WhyMoved(*state_, job, from, to, now);
}
void Engine::AddToLine(const Job& job, Time now, RoundTable& rows) const {
  if (state_->jobs.FindLive(job.id) == nullptr) return;
  RoundUnit row;
  engine::AddUnits(*state_, job, now, /*with_trials=*/false, row, rows);
}
void Engine::FinishLine(Time now, RoundTable& rows) const {
  engine::FinishUnits(*state_, now, rows);
}
size_t Engine::CountChildren(const Job& job) const {
  return engine::CountChildren(*state_, job);
}
std::optional<Standstill> Engine::StandstillOf(const Job& job) const {
  return engine::StandstillOf(*state_, job);
}
TrialCost Engine::ProfilingAt(Time now) const {
  return state_->trials.ProfilingAt(now);
}
const FailureRate& Engine::failure_rate() const {
  return state_->ledger.failure_rate();
}
const AcceleratorSpeeds& Engine::speeds() const { return state_->speeds; }
std::string Engine::ThroughputNotes(const Job& job) const {
  return state_->figures.ThroughputNotes(job);
}
std::string Engine::TrialNotes(const Job& job) const {
  return engine::RenderTrial(*state_, job);
}
bool Engine::IsStranded(const Job& job) const {
  return state_->checkpoints.IsStranded(job);
}
std::string Engine::MemoryText(const Job& job) const {
  return engine::MemoryText(*state_, job);
}

Actions Engine::Step(Time now, Event event) {
  engine::State& s = *state_;
  if (s.outbox.halted()) return {};
  const bool unsolved = s.agenda.unsolved();
  const uint64_t seq = s.outbox.seq();
  s.outbox.Fence(event);
  if (s.outbox.halted()) return s.outbox.Take();
  engine::TakeEvent(s, now, event);
  engine::SettleChildren(s, now);
  engine::FillArrays(s, now);
  // A new allocation is used for a fill at once, even if the next one is on its
  // way.
  const bool answered =
      engine::TakeAnswer(s, now) ||
      (std::holds_alternative<event::AllocationReady>(event) &&
       s.bidding.stage != engine::Bidding::Stage::kDivisions);
  if (s.agenda.seat_due()) engine::SeatInteractive(s, now);
  const bool waits = s.agenda.fill_due() && !answered &&
                     engine::IsAnswerNear(s, now) && s.agenda.FillMayWait(now);
  if (s.agenda.fill_due() && !waits) engine::Fill(s, now);
  if (s.agenda.judge_due()) engine::JudgeTrials(s, now);
  if (s.agenda.memory_due()) engine::MakeRoom(s, now);
  if (s.agenda.unsolved() && !unsolved) s.agenda.NoteUnsolved(s.outbox.seq());
  engine::MaybeSolve(s, now, s.operated.policy.name);
  if (s.outbox.seq() != seq) s.jobs.Prune(s.options.ended_jobs_kept);
  return s.outbox.Take();
}

Time Engine::NextDeadline() const {
  const engine::State& s = *state_;
  if (s.outbox.halted()) return kNever;
  Time round = s.round.NextDeadline();
  if (engine::AwaitsChoice(s, round)) round = std::nextafter(round, kNever);
  return std::min(
      {s.agenda.next_sweep(), s.agenda.fill_by(), engine::NextSolve(s), round});
}

void Engine::Replay(uint64_t seq, uint64_t term, Time time,
                    const Event& event) {
  state_->outbox.BeginReplay(seq, term);
  engine::Apply(*state_, time, event);
  state_->jobs.Prune(state_->options.ended_jobs_kept);
  state_->agenda.EndReplay();
  state_->outbox.EndReplay();
}

}  // namespace gavel

namespace gavel::engine {

// ---- snapshots: the whole engine is written, and read back

// All state except the options and the actions that are still to be done, in
// the order of the snapshot. Each class lists its own fields.
static auto FieldsOf(auto& s) {
  auto [jobs, names, ended, next_job, numbers_from, ended_elements] =
      JobTable::State(s.jobs);
  auto [term, seq, persisted, halted, term_seq, term_began_at, term_starts] =
      Outbox::State(s.outbox);
  auto [round_duration, lease_duration, mechanism, queue, memory_rounds,
        wall_offset] = Terms::State(s.terms);
  auto [fill_due, unsolved, unsolved_seq, throughputs_moved, next_sweep,
        memory_due] = Agenda::State(s.agenda);
  auto [agents, has_budgets] = Agents::State(s.agents);
  auto [quarantined, holders, contexts, leases_until, lost_leases_until,
        silent] = LeaseBook::State(s.leases);
  auto [assigned] = AssignedAccelerators::State(s.assigned);
  auto [changed, all_changed] = Changes::State(s.changes);
  auto [result, prices] = AllocationTable::State(s.allocation);
  auto [time_received, failure_rate, booked_at, ended_ahead] =
      Ledger::State(s.ledger);
  auto [isolated_clock, counted_at, isolated_version] =
      IsolatedTime::State(s.isolated);
  auto [tried, tried_pairs, trials, planned_trials, profiling] =
      TrialBook::State(s.trials);
  auto [rounds, round_ends_at, planned, replanned] = RoundClock::State(s.round);
  auto [accused, seconded] = Accusations::State(s.accusations);
  auto [avoided] = Avoidance::State(s.avoidance);
  auto [apps, present, presence, presence_at] = AppTable::State(s.apps);
  auto [pairs_tried, moves_tried, moving, attempts, lessons, trial_debt,
        trial_debt_at] = IntrospectionBook::State(s.introspection);
  auto& [problem, problem_version, problem_guesses, groups, solve_epoch,
         problem_seq, solving, solved_placement, solved_at, solve_retry_at] =
      s.solving;
  auto& [policy, drains] = s.operated;
  const auto before =
      std::tie(jobs, names, ended, s.cluster, agents, quarantined, tried,
               holders, assigned, time_received, s.throughputs, result);
  const auto after = std::tie(
      prices, term, seq, next_job, rounds, round_duration, lease_duration,
      mechanism, queue, memory_rounds, round_ends_at, planned, booked_at,
      persisted, halted, fill_due, unsolved, unsolved_seq, throughputs_moved,
      solve_epoch, solving, solved_placement, solved_at, solve_retry_at,
      term_seq, next_sweep, term_began_at, tried_pairs, contexts, has_budgets,
      memory_due, accused, replanned, isolated_clock, counted_at, changed,
      all_changed, s.speeds, profiling, leases_until, trials, planned_trials,
      failure_rate, term_starts, s.launches, policy, drains, numbers_from,
      lost_leases_until, seconded, avoided, isolated_version, ended_ahead,
      wall_offset, silent, apps, present, presence, presence_at, pairs_tried,
      moves_tried, moving, attempts, lessons, trial_debt, trial_debt_at,
      ended_elements);
  return std::tuple_cat(before, std::tuple(RowsAgain{&result.allocation}),
                        after);
}

// Derives the state that snapshots lack. The state that was read may be
// damaged.
static absl::Status Rebuild(State& s, const std::vector<JobId>& live) {
  s.changes.Rebuild();
  s.agents.Rebuild();
  GAVEL_RETURN_IF_ERROR(s.jobs.Rebuild(live));
  s.apps.Rebuild(s.jobs);
  s.allocation.Rebuild();
  s.introspection.Rebuild();
  RebuildTimes(s);
  RebuildDependencies(s);
  RebuildArrays(s);
  for (auto& [id, job] : s.jobs.all()) {
    // Older snapshots have only the time of its submission.
    if (!job.unqueued && job.queued_at == 0) job.queued_at = job.submitted_at;
  }
  for (const auto& [id, job] : s.jobs.live()) {
    for (Worker& worker : job->workers) {
      // Older snapshots have one progress for both.
      if (worker.known.at == 0) {
        worker.Know(worker.progress_at, worker.progress);
      }
    }
    BarTypes(s, *job);
    BarServers(s, *job);
  }
  return absl::OkStatus();
}

}  // namespace gavel::engine

namespace gavel {

absl::StatusOr<std::string> Engine::Snapshot() const {
  if (!state_->outbox.empty()) {
    return absl::FailedPreconditionError(
        "the engine has actions that are not yet done; take the snapshot when "
        "everything journaled is on disk");
  }
  Packer packer(kJournalLimits);
  packer.Array(3);
  PutField(packer, state_->jobs.LiveIds());
  const auto state = engine::FieldsOf(*state_);
  packer.Array(std::tuple_size_v<decltype(state)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             state);
  PutField(packer, state_->terms.settings());
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status Engine::Restore(std::string_view snapshot) {
  Unpacker unpacker(snapshot, kJournalLimits);
  std::vector<JobId> live;
  GetField(unpacker, live);
  unpacker.Enter();
  std::apply([&](auto&&... field) { (GetField(unpacker, field), ...); },
             engine::FieldsOf(*state_));
  unpacker.Leave();
  if (unpacker.ok()) state_->cluster.CountUsable();
  const uint64_t version = state_->throughputs.version();
  event::Settings settings;
  GetField(unpacker, settings);
  GAVEL_RETURN_IF_ERROR(engine::Rebuild(*state_, live));
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat("the snapshot is damaged: ",
                                      ToStd(unpacker.status().message())));
  }
  if (settings.told) state_->terms.TakeSettings(settings);
  engine::FindTableRows(*state_);
  // Looking up table rows and barred types again has raised the version, but no
  // throughput has changed.
  std::get<4>(ThroughputMatrix::State(state_->throughputs)) = version;
  const bool all = state_->changes.all(engine::Changes::kIsolated);
  state_->assigned.Recount();
  state_->changes.SetAll(engine::Changes::kIsolated, all);
  if (unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot has fields that this version of gavel does not know; use "
        "the version that wrote it, or a newer one");
  }
  return absl::OkStatus();
}

}  // namespace gavel
