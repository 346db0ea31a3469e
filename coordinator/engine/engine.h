// The scheduling engine: decisions without I/O. The server drives it with the
// real clock and network, the simulator with virtual ones.
//
// Not thread-safe. Deterministic: equal events at equal times, equal actions.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"

namespace gavel {

struct RhoProblem;

namespace engine {
struct State;
}  // namespace engine

class Engine {
 public:
  explicit Engine(EngineOptions options);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // Takes one event at `now` (never before the last one's) and returns the
  // actions that follow from it. A message that follows from a durable event is
  // returned only once that event is Persisted.
  Actions Step(Time now, Event event);
  void Reuse(Actions done);  // the memory of what Step returned
  // When Step(Tick) wants to be called next; kNever when nothing is due.
  Time NextDeadline() const;
  // Recovery: applies one journaled event without any action. After the last
  // row, Step(CoordinatorStarted) opens the new term.
  void Replay(uint64_t seq, uint64_t term, Time time, const Event& event);

  // The whole state as bytes, between two steps; FAILED_PRECONDITION unless
  // everything journaled is on disk. Restore reads them into an engine of the
  // same options. DATA_LOSS: the bytes are damaged, and the engine can't be
  // used.
  absl::StatusOr<std::string> Snapshot() const;
  absl::Status Restore(std::string_view snapshot);

  // All jobs, but of those that have ended only some (JobTable::Prune). Valid
  // until the next call.
  const std::map<JobId, Job>& jobs() const;
  const Job* FindJob(JobId id) const;  // null: not there
  // The owner's latest job or array of this name, which may have ended; invalid
  // if there is none.
  JobId LatestNamed(const std::string& owner, const std::string& name) const;
  const Cluster& cluster() const;
  const std::map<std::string, Agent, std::less<>>& agents() const;
  const ThroughputMatrix& throughputs() const;
  const PolicyResult& allocation() const;
  const EngineOptions& options() const;
  const Operated& operated() const;
  // Accelerators whose last worker could not be asked or confirmed dead.
  const std::multimap<AcceleratorId, WorkerKey>& quarantined() const;
  // The first job that reported the accelerator as lost; invalid if no report
  // stands any more.
  JobId AccuserOf(AcceleratorId lost) const;
  JournalPosition position() const;
  // False: the journal has lost that row, or another coordinator wrote it.
  bool Knows(const JournalPosition& seen) const;
  uint64_t rounds() const;
  JobId next_job() const;  // of a submission
  // Why the job would be refused if it were submitted now; empty: it would not.
  std::string WhyNotAdmitted(const JobSpec& spec) const;
  Time round_ends_at() const;
  bool halted() const;
  // The end of the round, or of the next one where it is planned to go on.
  Time LeaseHorizon(const Job& job) const;
  Time leases_until() const;  // of earlier terms
  JobShares SharesOf(JobId job, Time now) const;
  // The time that an active job has received alone, from which its priorities
  // are computed.
  event::Received ReceivedOf(JobId job, Time now) const;
  // Whether an app is present that jobs name.
  bool HasApps() const;
  // How many active jobs the app of the job has; 0: the job has no app.
  size_t JobsOfApp(const Job& job) const;
  // Make the input of RhoOfJobs (solver.h): for the job's app alone, or one job
  // after the other. The engine may take steps between the calls, but the
  // problem must have as many types as the cluster.
  RhoProblem RhoProblemOfApp(Time now, const Job& job) const;
  RhoProblem EmptyRhoProblem() const;
  void AddToRho(const Job& job, Time now, RhoProblem& rho) const;
  // The job's app in the auction of the last allocation; null:
  // the policy holds none.
  const AppBid* BidOf(const Job& job) const;
  // The bidder of the job's app: empty if the policy bids, "itself", or why the
  // coordinator bid or divided for it the last time.
  std::string BidderText(const Job& job) const;
  // The seconds that the job's steps left take alone on the type where it is
  // fastest; nullopt if its steps or its throughputs are not known.
  std::optional<double> SecondsLeft(const Job& job, Time now) const;
  // The work that is to come in the job's app, by its goal, in
  // accelerator-seconds: a step costs as much as one of this job does alone on
  // the type where it is fastest. nullopt: none, or not known.
  std::optional<double> AppToCome(const Job& job) const;
  Reason Why(JobId job, Time now) const;
  // The same without its place in line, which a WaitingLine has.
  Reason WhyUnranked(JobId job, Time now) const;
  // As in explanations.h.
  std::string WhyPaused(const Job& job, int rank, AcceleratorId left,
                        Time now) const;
  std::string WhyMoved(const Job& job, AcceleratorId from, AcceleratorId to,
                       Time now) const;
  // Make the rows of a WaitingLine: AddToLine adds those of one job, and
  // FinishLine, after the last job, those of pairs and the weights of entities.
  // The engine may take steps between the calls, and a job may end, but the
  // table must have as many types as the cluster.
  void AddToLine(const Job& job, Time now, RoundTable& rows) const;
  void FinishLine(Time now, RoundTable& rows) const;
  // How many jobs wait for the job, or for all of its array.
  size_t CountChildren(const Job& job) const;
  // The rank that has stood still for longest, if that is a large part of the
  // time that is allowed.
  std::optional<Standstill> StandstillOf(const Job& job) const;
  TrialCost ProfilingAt(Time now) const;
  const FailureRate& failure_rate() const;
  const AcceleratorSpeeds& speeds() const;
  // Figures that measurements contradict: "submitted 40 steps/s on v100, ...".
  std::string ThroughputNotes(const Job& job) const;
  // The last trial of the job by the introspection, for people; empty: none.
  std::string TrialNotes(const Job& job) const;
  // No server that has its latest checkpoint can be reached.
  bool IsStranded(const Job& job) const;
  // Where a waiting job has its tensors: "parked in host memory on head".
  std::string MemoryText(const Job& job) const;

 private:
  std::unique_ptr<engine::State> state_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_H_
