// The scheduling engine: decisions without I/O. The server drives it with the
// real clock and network, the simulator with virtual ones.
//
// Not thread-safe. Deterministic: equal events at equal times, equal actions.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_H_

#include <array>
#include <deque>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failure_rate.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/reference_rows.h"
#include "coordinator/engine/user_shares.h"
#include "coordinator/jobs/by_accelerator.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/jobs/time_received.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/throughput/accelerator_speeds.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/queue.h"

namespace gavel {

class Engine {
 public:
  explicit Engine(EngineOptions options);

  // Takes one event at `now` (never before the last one's) and returns what
  // is to be done now. A message that follows from a durable event comes only
  // after that event's Persisted.
  Actions Step(Time now, Event event);
  void Reuse(Actions done);  // the memory of what Step returned
  // When Step(Tick) wants to be called next; kNever when nothing is due.
  Time NextDeadline() const;
  // Recovery: applies one journaled event without any action. After the last
  // row, Step(CoordinatorStarted) opens the new term.
  void Replay(uint64_t seq, uint64_t term, Time time, const Event& event);

  // All of it as bytes, between two steps, when everything journaled is on disk
  // (else FAILED_PRECONDITION); and back, into an engine of the same options.
  // DATA_LOSS: they are damaged, and the engine is of no use.
  absl::StatusOr<std::string> Snapshot() const;
  absl::Status Restore(std::string_view snapshot);

  // Valid until the next call. Of ended jobs EngineOptions::ended_jobs_kept.
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  const Job* FindJob(JobId id) const { return Find(id); }  // null: not there
  const Cluster& cluster() const { return cluster_; }
  const std::map<std::string, Agent, std::less<>>& agents() const {
    return agents_;
  }
  const ThroughputMatrix& throughputs() const { return throughputs_; }
  const PolicyResult& allocation() const { return result_; }
  const EngineOptions& options() const { return options_; }
  const Operated& operated() const { return operated_; }
  // Accelerators whose last worker could not be asked or confirmed dead.
  const std::multimap<AcceleratorId, WorkerKey>& quarantined() const {
    return quarantined_;
  }
  JournalPosition position() const { return {term_, seq_}; }
  // False: the journal has lost that row, or another coordinator wrote it.
  bool Knows(const JournalPosition& seen) const;
  uint64_t rounds() const { return rounds_; }
  JobId next_job() const { return JobId(next_job_); }  // of a submission
  Time round_ends_at() const { return round_ends_at_; }
  bool halted() const { return halted_; }
  // The end of the round, or of the next one where it is planned to go on.
  Time LeaseHorizon(const Job& job) const;
  Time leases_until() const { return leases_until_; }  // of earlier terms
  JobShares SharesOf(JobId job, Time now) const;
  // What counts for and against an active job, alone, in its priorities.
  event::Received ReceivedOf(JobId job, Time now) const;
  Reason Why(JobId job, Time now) const;
  // But for its place in line, which a WaitingLine of LineRows tells.
  Reason WhyUnranked(JobId job, Time now) const;
  RoundTable LineRows(Time now) const { return RoundUnits(now, false); }
  // The rank that has stood still for longest, if for much of what is allowed.
  std::optional<Standstill> StandstillOf(const Job& job) const;
  TrialCost ProfilingAt(Time now) const;
  const FailureRate& failure_rate() const { return failure_rate_; }
  const AcceleratorSpeeds& speeds() const { return speeds_; }
  // Figures that measurements contradict: "submitted 40 steps/s on v100, ...".
  std::string ThroughputNotes(const Job& job) const;
  // No server that has its latest checkpoint can be reached.
  bool IsStranded(const Job& job) const;
  // Where a waiting job has its tensors: "parked in host memory on head".
  std::string MemoryText(const Job& job) const;

 private:
  template <class E>
  static auto State(E& engine);
  // ---- engine.cc: the door, and the journal
  Actions Close();
  void Record(Time now, Event event);
  void Emit(Action&& action);     // after the present event is on disk
  void EmitNow(Action&& action);  // follows from nothing that is not on disk
  void Flush();
  void Fence(const Event& event);
  void Apply(Time now, const Event& event);
  void Apply(const event::Settings& settings);
  event::Settings SettingsNow() const;
  void FindTableRows();
  void Prune();

  // ---- engine_solve.cc: problems for the policy, and what comes back
  void MaybeSolve(Time now);
  Time SolveDue() const;
  void BuildProblem(Time now);
  bool KeepsProblem() const;
  void UpdateProblem(Time now);
  PolicyJob ProblemJob(const Job& job, Time now) const;
  void AddPlacement(PolicyProblem& problem) const;
  void AddThroughputs(PolicyProblem& problem);
  void AddThroughputs(const PolicyJob& row, PolicyProblem& problem,
                      std::vector<double>& out);
  void AddPairs(PolicyProblem& problem) const;
  double Pace(const Job& job) const;
  std::string FigureName(JobId job, const std::string& type, bool spread) const;
  double StepsDone(const Job& job, Time now) const;
  double TogetherThroughput(const Job& a, const Job& b, size_t type) const;
  double SecondsReceived(const Job& job, Time now) const;
  void TakeAllocation(Time now, const PolicyResult& result);
  void TakeAssignment(Time now, const PolicyResult& result);
  void AddTarget(const ShareUnit& unit, double share);

  // ---- engine_isolated.cc: time alone on an equal part of the cluster
  void CountIsolated(Time now);
  void CountIsolated(Time now, Job& job);
  void SettleIsolated(Job& job);

  // ---- engine_admit.cc: what is let in, and what is only answered
  void Admit(Time now, event::JobSubmitted e);
  void FillThroughputs(JobSpec& spec) const;
  void Admit(Time now, const event::ServerJoined& e);
  void Admit(Time now, const event::WorkerJoined& e);
  void Admit(Time now, event::LeaseEnded e);
  void Admit(Time now, event::StepsReported e);
  void Admit(Time now, const event::WorkerGone& e);
  void Admit(Time now, event::AllocationReady e);
  void Admit(Time now, const event::LeaseRequested& e);
  void Admit(Time now, const event::AgentHeard& e);
  void Admit(Time now, const event::WorkerSaidFinished& e);
  void Admit(Time now, const event::WorkerBusy& e);
  void Admit(Time now, const event::Persisted& e);
  void Admit(Time now, const event::Tick& e);
  // Durable events that only come from outside as they are, or from replay.
  template <class E>
  void Admit(Time now, E e) {
    Record(now, std::move(e));
  }
  void AnswerRequest(Time now, Job& job, Worker& worker,
                     const LeaseRequest& request);
  void Deny(const WorkerKey& key, const Job& job, uint64_t nonce,
            double retry_after_s);
  void Grant(Time now, Job& job, int rank, uint64_t nonce, bool renewal);
  bool CanStart(const Job& job) const;
  void Reject(const WorkerKey& worker, std::string reason);

  // ---- engine_operator.cc: what operators do, and owners with their jobs
  void Admit(Time now, const event::JobCommanded& e);
  void Admit(Time now, event::AcceleratorsDrained e);
  void Admit(Time now, const event::JobUpdated& e);
  void Admit(Time now, const event::ServerForgotten& e);
  void Admit(Time now, const event::AgentLeaves& e);
  void On(Time now, const event::JobCommanded& e);
  void On(Time now, const event::AcceleratorsDrained& e);
  void On(Time now, const event::JobUpdated& e);
  void On(Time now, const event::PolicyChanged& e);
  void On(Time now, const event::ServerForgotten& e);
  void TakePolicyOf(const event::CoordinatorStarted& e);
  void PassLostNumbers(Time now, uint64_t from);
  void BarTypes(const Job& job);
  void Release(Job& job);
  void Leave(Time now, const event::AcceleratorsDrained& e);
  void SweepDrains(Time now);

  // ---- engine_sweep.cc: deadlines
  void Sweep(Time now);
  void SweepAgents(Time now);
  void SweepQuarantine(Time now);
  void SweepStrangers(Time now);
  void SweepWorker(Time now, Job& job, int rank);
  void RepeatLaunch(Time now, Job& job, int rank);
  void SweepLease(Time now, const Job& job, int rank, Worker& worker);
  void SweepGang(Time now, const Job& job, Worker& worker);
  bool SweepUnswept(Time now, Worker& worker, const WorkerKey& key);
  Time SweptAt(const std::string& server) const;
  Time LeasesOver(Time now) const;
  void Stop(Time now, Worker& worker, const WorkerKey& key, double grace_s);
  void Due(Time at) { next_sweep_ = at < next_sweep_ ? at : next_sweep_; }

  // ---- engine_apply.cc: durable events
  void On(Time now, const event::CoordinatorStarted& e);
  void On(Time now, const event::JobSubmitted& e);
  void On(Time now, const event::ServerJoined& e);
  void On(Time now, const event::ServerLost& e);
  void On(Time now, const event::AcceleratorLost& e);
  void On(Time now, const event::WorkerJoined& e);
  void On(Time now, const event::LeaseStarted& e);
  void On(Time now, const event::LeaseEnded& e);
  void On(Time now, const event::StepsReported& e);
  void On(Time now, const event::WorkerGone& e);
  void On(Time now, const event::WorkerAbandoned& e);
  void On(Time now, const event::AllocationReady& e);
  void On(Time now, const event::RoundPlanned& e);
  void On(Time now, const event::RoundStarted& e);
  void On(Time now, const event::PricesChanged& e);
  void On(Time now, const event::UnitsAssigned& e);
  void On(Time now, const event::WorkersEvicted& e);
  void On(Time now, const event::JobsResized& e);
  template <class E>
  void On(Time, const E&) {}  // the volatile ones
  void TakeReceived(JobId id, const event::Received& received);
  void Reconcile(Time now, const AgentHello& hello, const Agent& before);
  void Measure(Time now, Job& job, const Progress& progress);

  // ---- engine_job.cc, engine_end.cc: a job's processes and leases
  Job* Find(JobId id) const;
  Job* FindLive(JobId id) const;  // of live_
  Worker* Find(const WorkerKey& key);
  void Assign(Time now, Job& job, const std::vector<AcceleratorId>& next,
              JobId partner, PauseTier tier = PauseTier::kPark);
  bool Unchanged(const Job& job, const std::vector<AcceleratorId>& next,
                 JobId partner) const;
  bool Together(const Job& job, JobId other) const;
  void NoteWaiting(Job& job);
  void CountAssigned(AcceleratorId accelerator, int by);
  void CountAssigned();
  ShareUnit UnitOf(const Job& job) const;
  void EnsureProcesses(Time now, Job& job,
                       const std::vector<AcceleratorId>& where);
  void ReviveDone(Time now, Job& job);
  void Launch(Time now, Job& job, int rank, AcceleratorId where);
  void SendLaunch(Time now, Job& job, int rank);
  Message LaunchMessage(const Job& job, int rank) const;
  void Pause(Time now, Job& job, int rank, PauseTier tier);
  void TellToStop(Time now, const Job& job, Worker& worker, double grace_s);
  void EndWorkers(Time now, Job& job, PauseTier tier);
  void NotifyReady(Job& job);
  void Notify(const Job& job, int rank);
  void AcceleratorFreed(AcceleratorId accelerator);
  void Book(Time now, Job& job, Worker& worker, TimeReceived::Booking& booking);
  void BookStart(Time now, Job& job, Worker& worker);
  void EndLease(Time now, Job& job, Worker& worker);
  void Quarantine(const Worker& worker, const WorkerKey& key);
  void ProcessEnded(Time now, Job& job, int rank, const WorkerExited& exit);
  bool GiveUpLaunching(Time now, Job& job, const WorkerExited& exit);
  void CountFailure(Time now, Job& job, const FailedEnd& end);
  void EndJob(Time now, Job& job, JobState state, Reason reason,
              PauseTier tier = PauseTier::kStop);
  static bool MustGo(const Job& job, int rank);
  const WorkerKey* HeldByOther(AcceleratorId accelerator, const Job& job) const;

  // ---- engine_memory.cc: tiers of pauses, and memory budgets
  using Tiers = std::vector<std::pair<JobId, PauseTier>>;
  Tiers ChooseTiers(Time now) const;
  double ExpectedAbsence(const Job& job, const WaitingUnits& line) const;
  bool MayKeep(const Job& job, std::map<AcceleratorId, double>& kept) const;
  void MakeRoom(Time now);
  void MakeRoomOn(AcceleratorId id, std::set<WorkerKey>& evicted) const;
  void MakeRoomOnHosts(std::set<WorkerKey>& evicted) const;
  std::set<WorkerKey> ParkedOn(AcceleratorId accelerator) const;
  const WorkerKey* LeavingMemory(AcceleratorId id, const Job& job) const;
  const Worker& WorkerOf(const WorkerKey& key) const;
  void OutOfMemory(Job& job, AcceleratorId where, JobId partner, Time now);

  // ---- engine_lost.cc: accelerators that fail
  void AdmitFailedDevice(Time now, JobId job, AcceleratorId where);
  void BelieveAccuser(JobId job, std::string_view type);
  void WithdrawAccusations(JobId job);
  void ForgetLost(const std::string& server);

  // ---- engine_move.cc: checkpoints on servers that share no directory
  bool HasOwnCheckpoints(const std::string& server) const;
  bool FitsCheckpoints(const AgentHello& hello) const;
  void NoteWriter(Job& job, const std::string& server, uint64_t epoch);
  void NoteRestored(Job& job, const std::string& server);
  std::vector<std::string> CheckpointServers(const Job& job) const;
  CheckpointSource SourceFor(const Job& job, const std::string& server) const;
  void OfferCheckpoint(const Job& job, const CheckpointSource& source,
                       const std::string& reader);
  void Prefetch(const Job& job);
  bool ShareCheckpoints(const std::vector<AcceleratorId>& places) const;
  void GiveUpFetches(Time now);
  // False: it is tried again.
  bool GiveUpFetching(Time now, Job& job, const std::string& server);
  void ForgoCheckpoints(Job& job);
  void Admit(Time now, const event::CheckpointComing& e);
  Reason WhyMoving(const Job& job, int rank) const;
  Reason WhyStranded(const Job& job) const;
  bool IsTooWideForOneServer(const Job& job) const;

  // ---- engine_pairs.cc: two jobs beside each other, live
  bool WasBeside(Time now, const Job& job, double window_s) const;
  void MeasurePair(Time now, Job& job, const Progress& progress);
  bool KeepPairCell(Job& job, const Job& other, const std::string& type);
  std::optional<std::pair<double, double>> PairThroughput(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  void FindTableRow(Job& job);
  std::vector<ProfiledCell> CellsOf(const Job& job) const;
  std::optional<double> ScaleOf(const Job& job, size_t type,
                                size_t table_type) const;
  std::optional<std::pair<double, double>> TablePair(
      const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
      bool consolidated) const;
  bool PairFits(const Job& a, const Job& b, size_t type) const;
  void AddPart(const Job& job, int rank, LeaseGrant& grant) const;
  void AddPairTrials(RoundTable& units, Time at,
                     const std::vector<int>& left) const;
  bool IsPairTrial(const Job& a, const Job& b, size_t type) const;
  std::map<ShareUnit, size_t> PairsToTry(const PolicyProblem& problem) const;

  // ---- engine_trials.cc: what is learnt of jobs while they run
  std::vector<int> TrialBudgets(double percentage) const;
  std::vector<int> AddTrials(RoundTable& units) const;
  std::vector<ShareUnit> TrialsOf(const RoundTable& units,
                                  const RoundAssignment& places) const;
  void StartTrials(Time now);
  void NoteTried(Job& job, Worker& worker);
  void CountTrial(Time now, Worker& worker);
  double SpeedOf(const Job& job) const;
  void MeasureAlone(Time now, Job& job, const Progress& progress);
  bool IsSpread(const Job& job) const;
  bool IsOfTable(const Job& job, const std::string& type, double given) const;

  // ---- engine_gang.cc: what several ranks of a job need of each other
  void NoteGang(Job& job, const Worker& worker, const LeaseRequest& request);
  static bool WaitsForGang(const Job& job, int rank, uint64_t epoch);
  void RestartGang(Time now, Job& job);
  void GiveUpEpoch(Time now, Job& job, ReleaseCause cause);
  void AddPlaceInGang(const Job& job, int rank, LaunchWorker& launch) const;

  // ---- engine_elastic.cc: jobs that grow and shrink
  void ResizeJobs(Time now, Time at, bool keep_running);
  std::vector<SizedJob> SizedJobs(Time now, const RoundAssignment& plan);
  void DropGrowth(const RoundAssignment& plan, Time at,
                  std::vector<Resize>& resizes);
  bool IsLeftOut(Job& job, const std::vector<int>& free) const;
  void ChangeWorldSize(Time now, Job& job, int world_size);
  void NoteResized(Time now, Job& job);
  bool GiveUpSize(Time now, Job& job);

  // ---- engine_hang.cc: workers that make no steps
  double HangTimeout(const Job& job, const Worker& worker) const;
  void NoteSteps(Time now, Worker& worker, const Progress& told);
  void SweepHung(Time now, const Job& job, int rank, Worker& worker);

  // ---- engine_round.cc: rounds
  RoundTable RoundUnits(Time at, bool with_trials) const;
  void AddUnits(const Job& job, std::optional<Time> at, bool with_trials,
                RoundUnit& row, RoundTable& units) const;
  void MakePlace(const ShareUnit& unit, const Job& job, RoundUnit& row) const;
  void MakeUnit(const ShareUnit& unit, const Job& job, Time at,
                RoundUnit& row) const;
  const std::vector<bool>& UsableTypes(const Job& job) const;
  bool IsAllocated(const Job& job) const;
  bool MayRun(const Job& job) const;
  bool MayRun(const ShareUnit& unit) const;
  std::span<const double> Allocated(const ShareUnit& unit) const;
  uint32_t Chosen(const ShareUnit& unit) const;
  uint32_t Chosen(const Job& job) const;
  void NoteChosen(std::span<const TypeAssignment> entries);
  bool HasShare(const ShareUnit& unit) const;
  void Fill(Time now);
  std::vector<bool> FillableTypes();
  void BookAll(Time now);
  void BookJob(Time now, Job& job);
  double TargetSince(const Job& job, Time now) const;
  void BookTarget(Time now, Job& job);
  void StartRounds(Time now);
  double PlanLead() const;
  Reason WhyWaiting(const Job& job, Time now) const;

  // ---- engine_plan.cc: the plan of the next round
  // Who keeps what of jobs, and which have changed since it last looked.
  enum Reader : uint8_t { kPlan, kProblem, kIsolated, kFill, kReaders };
  void Touch(Job& job);
  void TouchAll();
  std::vector<JobId> TakeChanges(Reader reader);
  bool PlansWhole() const;
  bool IsSettled(const Job& job) const;
  std::optional<std::vector<JobId>> Unsettled();
  RoundPlan PlanAll(Time at, bool keep_running,
                    const std::vector<bool>& types = {});
  RoundAssignment PlaceJobs(const std::vector<JobId>& jobs, bool keep_running,
                            const std::vector<bool>& types);
  void PlanRoundAhead(Time now);
  void Complete(RoundPlan& plan) const;
  bool IsReplanned(const Job& job) const;
  const std::vector<AcceleratorId>& PlannedFor(const Job& job) const;
  bool GoesOn(const Job& job) const;
  void ForgetPlan(Job& job);
  void ForgetPlans();
  void NoticeHolders(Job& job);

  EngineOptions options_;
  event::Settings given_;                    // those of its own options
  std::optional<ReferenceRows> references_;  // of options_.throughputs

  // Durable: the same after a replay.
  std::map<JobId, Job> jobs_;  // by_id_: only to look up
  absl::flat_hash_map<JobId, std::map<JobId, Job>::iterator> by_id_;
  absl::btree_map<JobId, Job*> live_;     // those active, or with a process
  absl::btree_map<JobId, Job*> waiting_;  // of live_: with nothing assigned
  std::vector<int> free_;          // by type: usable and not assigned to anyone
  std::vector<uint8_t> assigned_;  // jobs, by accelerator id - 1
  std::optional<FreePlaces> free_places_;  // of assigned_; made when needed
  size_t active_jobs_ = 0;                 // of live_
  bool elastic_ = false;                   // some job of live_ is, or was
  absl::flat_hash_map<std::string, JobId> names_;  // of jobs not over
  std::deque<JobId> ended_;
  Cluster cluster_;
  std::map<std::string, Agent, std::less<>> agents_;
  // Two on one accelerator only of a packed pair; so in holders_.
  std::multimap<AcceleratorId, WorkerKey> quarantined_;
  std::set<std::pair<JobId, size_t>> tried_;  // types that it was unknown on
  std::set<std::pair<ShareUnit, size_t>> tried_pairs_;
  std::vector<ShareUnit> trials_;          // of this round, ascending
  std::vector<ShareUnit> planned_trials_;  // of the one that is planned
  std::multimap<AcceleratorId, WorkerKey> contexts_;  // Worker::contexts
  bool own_checkpoints_ = false;  // some agent has, or had, its own
  bool has_budgets_ = false;      // some accelerator or server told its memory
  ByAccelerator<WorkerKey> holders_;        // of running leases
  ByAccelerator<JobId> assigned_to_;        // Job::assigned
  std::map<AcceleratorId, JobId> accused_;  // lost, on the word of this job
  Operated operated_;
  TimeReceived time_received_;
  ThroughputMatrix throughputs_;
  AcceleratorSpeeds speeds_;
  FailureRate failure_rate_;
  double profiling_s_ = 0;  // of trials that are over
  PolicyResult result_;     // an assignment's ascending by unit
  std::map<std::string, double, std::less<>> prices_;
  uint64_t term_ = 0, seq_ = 0;
  std::map<uint64_t, uint64_t> term_starts_;  // term -> seq of its first row
  uint64_t next_job_ = 1, rounds_ = 0;
  LaunchPace launches_;
  // Of the event's term, whatever the options are now.
  double round_duration_s_, lease_duration_s_;
  Time leases_until_ = -kNever;
  uint64_t numbers_from_ = 0;         // CoordinatorStarted::numbers_from
  Time lost_leases_until_ = -kNever;  // those that lost rows granted
  MechanismKind mechanism_;
  QueueKind queue_;
  double memory_rounds_;
  Time round_ends_at_ = kNever;
  bool planned_ = false;
  // Whose Job::planned counts, ascending; nullopt: everybody's.
  std::optional<std::vector<JobId>> replanned_;
  std::map<int, double> isolated_clock_;  // by scale factor: CountIsolated
  Time counted_at_ = 0;
  uint64_t isolated_version_ = 0;  // of throughputs_
  Time booked_at_ = 0;             // Job::target_s counts up to here at least

  // Forgotten by a restart.
  std::map<WorkerKey, FetchProgress> fetching_;
  // Processes that nobody wants, and their servers: stopped until gone.
  std::map<WorkerKey, std::string> strangers_;
  Actions actions_;
  Queue<std::pair<uint64_t, Action>> unpersisted_;
  uint64_t persisted_ = 0;
  bool replaying_ = false, halted_ = false;
  bool fill_due_ = false;         // accelerators or jobs came free
  std::vector<JobId> over_;       // jobs that may be, of live_
  std::vector<JobId> uncounted_;  // jobs without Job::counted_since
  std::array<JobChanges, kReaders> changes_;
  std::vector<JobId> unsettled_;  // by the last plan, unless all are
  FilledTypes filled_;
  IdleTypes idle_;
  std::shared_ptr<PolicyProblem> problem_;  // the last one, kept by change
  uint64_t problem_version_ = 0;            // of throughputs_
  bool problem_guesses_ = false;    // it has throughputs that nobody knows
  bool memory_due_ = false;         // somebody parked, or is to start
  bool unsolved_ = false;           // jobs or cluster changed since the solve
  uint64_t unsolved_seq_ = 0;       // the row that made it so
  bool throughputs_moved_ = false;  // solved again when the next round begins
  uint64_t solve_epoch_ = 0;
  uint64_t problem_seq_ = 0;  // the row that its problem was made behind
  bool solving_ = false;
  UserShares users_;
  bool solved_placement_ = false;  // it had consolidated columns
  Time solved_at_ = -kNever;       // when the last problem went out
  Time solve_retry_at_ = kNever;   // after a solve that failed
  uint64_t term_seq_ = 0;          // of this term's CoordinatorStarted
  Time term_began_at_ = 0;
  Time next_sweep_ = kNever;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_H_
