// State of the whole engine: the settings in force (Terms), the work that
// is still to be done and when (Agenda), and the rounds (RoundClock). Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_TERMS_H_
#define GAVEL_COORDINATOR_ENGINE_TERMS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

// The settings in force: of the term that the present row of the journal
// belongs to, whatever this engine was made with.
//
// Not thread-safe. Snapshot fields: the six that are journaled beside
// event::Settings; the settings themselves end a snapshot.
class Terms {
 public:
  explicit Terms(EngineOptions options)
      : options_(std::move(options)),
        given_(options_),
        round_duration_s_(options_.round_duration_s),
        lease_duration_s_(options_.lease_duration_s),
        mechanism_(options_.mechanism),
        queue_(options_.queue),
        memory_rounds_(options_.memory_rounds) {}

  // Valid as long as this object; the settings in it change with the term.
  const EngineOptions& options() const { return options_; }
  double round_duration_s() const { return round_duration_s_; }
  double lease_duration_s() const { return lease_duration_s_; }
  MechanismKind mechanism() const { return mechanism_; }
  QueueKind queue() const { return queue_; }
  double memory_rounds() const { return memory_rounds_; }
  // When all leases that are granted until `now` are over by every clock.
  Time LeasesOver(Time now) const {
    return now + lease_duration_s_ * (1 + options_.drift);
  }

  // The settings for a row that begins a term: this engine's own.
  void Tell(event::CoordinatorStarted& start) const {
    start.round_duration_s = options_.round_duration_s;
    start.lease_duration_s = options_.lease_duration_s;
    start.mechanism = options_.mechanism;
    start.queue = options_.queue;
    start.memory_rounds = options_.memory_rounds;
    start.settings = {given_, true};
  }
  // A duration of 0 is one of an older row that does not have it.
  void TakeDurations(Time now, const event::CoordinatorStarted& start) {
    if (start.wall_s > 0) options_.wall_offset_s = start.wall_s - now;
    if (start.round_duration_s > 0) round_duration_s_ = start.round_duration_s;
    if (start.lease_duration_s > 0) lease_duration_s_ = start.lease_duration_s;
    mechanism_ = start.mechanism;
    queue_ = start.queue;
    memory_rounds_ = start.memory_rounds;
  }

  event::Settings settings() const { return {options_, true}; }
  void TakeSettings(const event::Settings& settings) {
    if (settings.told) static_cast<DecisionSettings&>(options_) = settings;
  }
  // Takes the options of the policy that decides now.
  void SetPolicy(bool packing, bool progress) {
    options_.packing = options_.pair_trials = packing;
    options_.progress = progress;
  }
  void SetIntrospection(bool on) { options_.introspection = on; }

  static auto State(auto& t) {
    return std::tie(t.round_duration_s_, t.lease_duration_s_, t.mechanism_,
                    t.queue_, t.memory_rounds_, t.options_.wall_offset_s);
  }

 private:
  EngineOptions options_;
  const DecisionSettings given_;  // as the engine was made
  double round_duration_s_, lease_duration_s_;
  MechanismKind mechanism_;
  QueueKind queue_;
  double memory_rounds_;
};

// The work that the engine still has to do, and when. Any subject adds to it;
// the engine looks at it after each event, and in NextDeadline. It decides
// nothing.
//
// Not thread-safe. Snapshot fields: all but how long a fill may wait, whether
// an interactive job may start, and which jobs are to be judged.

class Agenda {
 public:
  // Deadlines are looked at again at that time, or earlier.
  void Due(Time at) { next_sweep_ = std::min(next_sweep_, at); }
  Time next_sweep() const { return next_sweep_; }
  void BeginSweep() { next_sweep_ = kNever; }

  // Accelerators or jobs became free, so that waiting jobs may start in this
  // round.
  void FillSoon() { fill_due_ = seat_due_ = true; }
  bool fill_due() const { return fill_due_; }
  void BeginFill() {
    fill_due_ = false;
    fill_by_ = kNever;
  }
  // A new allocation is on its way and decides which job is next. Accelerators
  // that came free wait for it until fill_by(); then the old one decides.
  bool FillMayWait(Time now) {
    fill_by_ = std::min(fill_by_, now + kFillWaitMax_s);
    return now < fill_by_;
  }
  Time fill_by() const { return fill_by_; }  // kNever: nothing waits

  // An interactive job may be able to start.
  void SeatSoon() { seat_due_ = true; }
  bool seat_due() const { return seat_due_; }
  void BeginSeat() { seat_due_ = false; }

  // A job parked or is about to start, so the memory budgets are checked.
  void MakeRoomSoon() { memory_due_ = true; }
  bool memory_due() const { return memory_due_; }
  void EndMakeRoom() { memory_due_ = false; }

  // The job reported its speed, or its trial is due.
  void JudgeSoon(JobId job) { judge_.insert(job); }
  bool judge_due() const { return !judge_.empty(); }
  std::set<JobId> TakeJudged() { return std::exchange(judge_, {}); }

  // Jobs or cluster changed since the last problem for the policy.
  void SolveSoon() { unsolved_ = true; }
  bool unsolved() const { return unsolved_; }
  void BeginSolve() { unsolved_ = false; }
  // The row of the journal by which they changed.
  void NoteUnsolved(uint64_t seq) { unsolved_seq_ = seq; }
  uint64_t unsolved_seq() const { return unsolved_seq_; }

  // Throughputs have changed: the policy solves again when the next round
  // begins.
  void SolveNextRound() { throughputs_moved_ = true; }
  void BeginRound() {
    if (std::exchange(throughputs_moved_, false)) SolveSoon();
  }

  // Called after a row was replayed. A fill or an eviction that followed has a
  // row of its own.
  void EndReplay() {
    fill_due_ = seat_due_ = memory_due_ = false;
    judge_.clear();
  }

  static auto State(auto& a) {
    return std::tie(a.fill_due_, a.unsolved_, a.unsolved_seq_,
                    a.throughputs_moved_, a.next_sweep_, a.memory_due_);
  }

 private:
  static constexpr double kFillWaitMax_s = 0.5;

  Time next_sweep_ = kNever;
  bool fill_due_ = false;
  bool seat_due_ = false;
  Time fill_by_ = kNever;
  bool memory_due_ = false;
  std::set<JobId> judge_;
  bool unsolved_ = false;
  uint64_t unsolved_seq_ = 0;
  bool throughputs_moved_ = false;
};

// Keeps when the round ends, whether the next one is planned, and for which
// jobs that plan counts. LeaseHorizon says how long a lease may go on.
//
// Not thread-safe. Snapshot fields: all.
class RoundClock {
 public:
  // Borrowed, and outlive this.
  RoundClock(const Terms& terms, const JobTable& jobs,
             const EngineOptions& options)
      : terms_(terms), jobs_(jobs), options_(options) {}

  // Whether the plan of the next round includes this job. If not, the job
  // continues unchanged.
  bool IsReplanned(const Job& job) const;
  // The job's accelerators in the next round, as far as that is planned.
  const std::vector<AcceleratorId>& PlannedFor(const Job& job) const;
  // Whether the job continues in the next round as it is in this one.
  bool GoesOn(const Job& job) const;
  // The job gets nothing in the next round.
  void ForgetPlan(Job& job);
  // No job has a plan until the next Plan.
  void ForgetPlans();
  // The end of the round, or of the next one where the job is planned to go on.
  Time LeaseHorizon(const Job& job) const;
  // If the job goes on, a lease that it is granted now for `duration_s` is
  // extended so long before its end at the latest: by a renewal, or once the
  // next round is planned.
  double ExtensionLead(const Job& job, Time now, double duration_s) const;
  // Rounds follow each other from now on, unless they do already.
  void StartRounds(Time now);

  Time ends_at() const { return round_ends_at_; }
  bool planned() const { return planned_; }
  uint64_t rounds() const { return rounds_; }
  // The jobs whose Job::planned counts; nullopt: all jobs.
  const std::optional<std::vector<JobId>>& replanned() const {
    return replanned_;
  }
  // The next round is planned, for those jobs.
  void Plan(const std::optional<std::vector<JobId>>& jobs);
  void Begin(Time now);  // the next round
  // All of the round's plan is carried out. `stop`: no further round follows.
  void EndPlan(bool stop);
  void Restart(Time ends_at);  // by a new term
  bool IsOver(Time now) const {
    return round_ends_at_ != kNever && planned_ && now >= round_ends_at_;
  }
  // When the next round is to be planned; kNever: it is, or there is none.
  Time PlanDue() const {
    return round_ends_at_ == kNever || planned_ ? kNever
                                                : round_ends_at_ - PlanLead();
  }
  Time NextDeadline() const { return planned_ ? round_ends_at_ : PlanDue(); }

  static auto State(auto& part) {
    return std::tie(part.rounds_, part.round_ends_at_, part.planned_,
                    part.replanned_);
  }

 private:
  double PlanLead() const;
  const Terms& terms_;
  const JobTable& jobs_;
  const EngineOptions& options_;
  Time round_ends_at_ = kNever;
  bool planned_ = false;
  // The jobs whose Job::planned counts, ascending; nullopt: all jobs.
  std::optional<std::vector<JobId>> replanned_;
  uint64_t rounds_ = 0;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_TERMS_H_
