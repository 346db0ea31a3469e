// The needs of the jobs of a trace, and the simulation of rounds with them.
// Used through TraceSimulation. Not thread-safe, except where it is written.
#ifndef GAVEL_SIMULATOR_ROUND_SIMULATION_H_
#define GAVEL_SIMULATOR_ROUND_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/throughput_estimator.h"
#include "coordinator/workload/job_spec.h"
#include "core/queue.h"
#include "simulator/trace_simulation.h"

namespace gavel {

// The demands of a trace's jobs: their specs for the engine, their true speeds,
// and which of them fit nowhere. The simulations with and without rounds share
// it. An immutable value, thread-safe.
class SimulatedWork {
 public:
  // As TraceSimulation::Create. Borrows the throughputs.
  static absl::StatusOr<SimulatedWork> Create(const SimulationOptions& options,
                                              const Trace& trace,
                                              const ThroughputTable& table);

  size_t size() const { return trace_.jobs.size(); }
  const TraceJob& job(size_t i) const { return trace_.jobs[i]; }
  const std::string& type(size_t i) const {
    return trace_.templates[trace_.jobs[i].job_template].type;
  }
  const std::vector<std::string>& types() const { return types_; }
  const std::vector<int>& capacity() const { return capacity_; }

  // Why the job fits nowhere; empty when it fits.
  std::string WhyUnfit(size_t i) const;
  JobSpec Spec(size_t i) const;
  // Null: the job waits for nothing.
  const SimulatedWaits* WaitsOf(size_t i) const {
    return i < options_.waits.size() ? &options_.waits[i] : nullptr;
  }
  // The cells that profiling measures. Deterministic by the seed and the job.
  std::vector<ProfiledCell> Profile(size_t i) const;
  Overhead OverheadOf(size_t i) const;
  // Seconds after its arrival; kNever: none.
  double Deadline(size_t i) const;
  // steps/s on accelerators of types()[type].
  double Alone(size_t i, size_t type, Locality level) const;
  // The same of an elastic job with `workers`, a number between its bounds. A
  // scale factor without a row is interpolated between the next smaller and
  // larger one by a power of the workers.
  double AtSize(size_t i, size_t type, int workers, Locality level) const;
  // The gang fits on one server of the type.
  bool FitsOnServer(size_t i, size_t type) const {
    return trace_.jobs[i].scale_factor <= largest_server_[type];
  }
  // The tightest level with room for the gang on one server of the type, or
  // beyond one.
  Locality LevelIn(size_t i, size_t type, bool on_server) const;
  // Accelerators of each server of the type.
  std::vector<int> Servers(size_t type) const;
  // steps/s of job i beside job k: on one server, or spread, where a table
  // without figures for spread gangs gives those of consolidated ones.
  double Together(size_t i, size_t k, size_t type, Locality level) const;
  std::optional<ThroughputTable::Row> Row(size_t i) const { return rows_[i]; }
  // Seconds that `steps` of the job would take with 1/n of each type.
  double IsolatedSeconds(size_t i, double steps, double n) const;
  // The seconds that the job takes alone on the type where it is fastest; 0 if
  // it can run nowhere.
  double FastestSeconds(size_t i) const;
  // The job's app; empty: it is one alone.
  std::string AppName(size_t i) const {
    const size_t app = trace_.jobs[i].app;
    return app == TraceJob::kNoApp ? "" : trace_.apps[app];
  }
  bool Lies(size_t i) const;              // the job's app does
  SimulatedJob Describe(size_t i) const;  // without an outcome

 private:
  SimulatedWork(const SimulationOptions& options, Trace trace,
                const ThroughputTable& table);
  std::string NameOf(size_t i) const;
  absl::Status Check() const;
  absl::Status CheckElastic(size_t i) const;
  std::optional<double> InTable(ThroughputTable::Row row, size_t type,
                                Locality level) const;
  // The part of its speed that the job keeps at the level (SpreadLoss).
  double Keeps(size_t i, Locality level) const;
  void StartSteady();

  SimulationOptions options_;
  Trace trace_;  // with the steps that the throughputs tell
  const ThroughputTable* table_;
  std::vector<std::optional<ThroughputTable::Row>> rows_;  // by job
  std::vector<std::string> types_;
  std::vector<int> capacity_;
  std::vector<int> largest_server_;  // by type: accelerators, as the next two
  std::vector<int> largest_group_;
  std::vector<int> largest_rack_;
  std::vector<std::optional<size_t>> table_type_;  // by type
  std::optional<ReferenceRows> references_;
};

// The common part of the simulations of a trace: its jobs from their arrival to
// their end.
class WorkSimulation : public TraceSimulation {
 public:
  uint64_t jobs_ended() const override { return ended_in_window_; }
  uint64_t jobs_in_window() const override { return window_end_ - begin_; }

 protected:
  WorkSimulation(SimulationOptions options, SimulatedWork work,
                 std::unique_ptr<Policy> policy);

  bool InWindow(size_t index) const {
    return index >= begin_ && index < window_end_;
  }
  bool WindowEnded() const { return ended_in_window_ == window_end_ - begin_; }
  void EndAtTimeLimit();
  // Calls arrive(index) for the jobs that have come by `now` and fit somewhere.
  template <class Arrive>
  void TakeArrived(Time now, Arrive arrive) {
    for (; next_ < work_.size() && work_.job(next_).arrival_s <= now; ++next_) {
      std::string why = work_.WhyUnfit(next_);
      why.empty() ? arrive(next_) : LeaveOut(next_, std::move(why));
    }
  }
  void LeaveOut(size_t index, std::string why);
  // `jobs` have been present since the last call.
  void CountPresent(Time now, size_t jobs);
  // The job's completion time is set, and CountPresent() was called up to it.
  void TakeEnded(SimulatedJob job);
  // Means over the jobs of the window, and the totals.
  // `running`: those that have not ended. `capacity` by type, may be shorter.
  SimulationResult Summary(std::vector<SimulatedJob> running, Time now,
                           const std::vector<int>& capacity,
                           const std::vector<double>& busy_s) const;

  SimulationOptions options_;
  SimulatedWork work_;
  std::unique_ptr<Policy> policy_;
  bool over_ = false;
  std::string stopped_;
  size_t next_ = 0;  // the next job to arrive
  size_t begin_ = 0;
  size_t window_end_ = 0;
  uint64_t ended_in_window_ = 0;
  std::vector<SimulatedJob> told_;  // as they end
  std::vector<UnfitJob> unfit_;
  Time last_end_ = 0;
  double present_s_ = 0;  // jobs x time
  Time present_at_ = 0;
  std::vector<double> busy_s_;  // [J] accelerator-seconds
};

// The simulation of rounds: the real engine, and workers that obey it at once
// over a perfect network.
class RoundSimulation : public WorkSimulation {
 public:
  RoundSimulation(SimulationOptions options, SimulatedWork work,
                  std::unique_ptr<Policy> policy);

  bool Run(uint64_t events) override;
  Time now() const override { return queue_.now(); }
  SimulationResult Result() const override;
  absl::StatusOr<std::string> Checkpoint() const override;
  absl::Status Resume(std::string_view checkpoint) override;

  // For tests.
  const Engine& engine() const { return engine_; }

  // ---- the contents of a checkpoint

  // A task of the virtual clock.
  enum class Kind : uint8_t {
    kArrive,  // of the next job
    kPrices,
    kFail,    // accelerator `id`
    kGiveUp,  // the lease of job `id`, rank `number`
    kFinish,  // job `id`, if its plan is still `number`
    kTick,    // the engine's deadline
    kReport,  // job `id` tells how fast it is beside another, and its loss, if
              // its plan is still `number`
  };
  struct Task {
    Kind kind = Kind::kArrive;
    uint64_t id = 0;
    uint64_t number = 0;
  };
  // One worker's process.
  struct Worker {
    uint64_t incarnation = 0;  // 0: no process
    uint64_t nonce = 0;
    uint64_t epoch = 0;  // of the lease that it holds; 0: none
    bool pausing = false;
    bool leaves = false;  // its process ends after the pause
    AcceleratorId held;
    Time from = 0;  // since when
  };

  // A job that has arrived and not ended. It trains while all of its workers
  // hold leases of one epoch.
  struct Running {
    size_t index = 0;  // in the trace
    JobId id;
    std::vector<Worker> workers;      // as many as it may have
    std::vector<AcceleratorId> last;  // where it ran before, by rank
    size_t type = 0;                  // where it holds or held leases
    Locality level = Locality::kServer;
    Time trains_from = kNever;  // kNever: not all leases held
    double steps = 0;           // done up to `counted_at`
    Time counted_at = 0;
    double steps_per_s = 0;  // from trains_from on
    double shared = 1;       // its part of the accelerators: 1/2 in a pair
    double placed = 0;  // its speed over that at the best level; 0: no gang
    uint64_t plan = 0;  // a finish planned for another number is off
    uint64_t pauses = 0;
    double pausing_s = 0;
    double profiling_s = 0;  // still to be profiled for
    SimulatedJob told;
    Time charged_at = 0;
  };

  struct Counters {
    uint64_t preemptions = 0;
    uint64_t moves = 0;
    uint64_t solves = 0;
    uint64_t failures = 0;
    double lost_s = 0;
    double cost = 0;
    double profiling_s = 0;
    // Accelerator-seconds that gangs trained alone, and the same times
    // Running::placed.
    double gangs_s = 0;
    double placed_s = 0;
  };

 private:
  // ---- the world
  template <class S>
  static auto State(S& simulation);
  void Do(const Task& task);
  void AddServers();
  void Arrive();
  void ChangePrices();
  void PlanFailure(AcceleratorId accelerator);
  void Fail(AcceleratorId accelerator);

  // ---- the engine's door
  void Drain();
  void Handle(Actions& actions);
  void Do(const action::Persist&) {}  // no journal is kept
  void Do(action::SolvePolicy& action) { problem_ = std::move(action); }
  absl::StatusOr<PolicyResult> Solve(const PolicyProblem& problem) const;
  void Do(const action::SendToWorker& action);
  void Do(const action::SendToAgent& action);
  void Do(const action::SendToBidder&) {}  // no app bids itself
  void Do(const action::Reply& action);
  void Do(const action::Halt& action);
  void Arm();

  // ---- workers
  int SizeOf(const Running& job) const;  // of its gang, as it is assigned
  bool IsOpaque(const Running& job) const {
    return work_.job(job.index).interactive || work_.job(job.index).opaque;
  }
  Running* Find(JobId id);
  Running* Find(const WorkerKey& key);
  Running* PartnerOf(const Running& job);
  void Launch(const WorkerKey& key);
  void Exit(Running& job, int rank, int code, int signal, bool no_failure);
  void Ask(Running& job, int rank);
  void Granted(Running& job, int rank, uint64_t epoch);
  void Asked(Running& job, int rank, PauseTier tier);
  void Begin(Running& job);
  void Stop(Running& job);
  void GiveUp(JobId id, int rank);
  void Count(Running& job);
  void Charge(Running& job);
  void Train(Running& job);
  bool IsOutOfMemory(const Running& job);
  void GiveUpPair(Running& job);
  void Report(JobId id, uint64_t plan);
  void TellSpeed(const Running& job);
  void Finish(JobId id, uint64_t plan);
  void TakeAllEnded();
  Progress ProgressOf(const Running& job) const;

  // ---- accounts
  void Occupy(Worker& worker);
  void Leave(Running& job, Worker& worker);
  void CountBusy();
  void Sample();
  bool Stuck();

  TimedQueue<Task> queue_;
  Engine engine_;
  std::mt19937_64 random_;

  Queue<Event> inbox_;
  uint64_t journaled_ = 0;
  uint64_t persisted_ = 0;
  std::optional<action::SolvePolicy> problem_;
  Time armed_ = kNever;

  std::map<JobId, Running> running_;
  // An index of running_, for look-ups.
  absl::flat_hash_map<JobId, std::map<JobId, Running>::iterator> by_id_;
  std::deque<JobId> finished_;  // not yet taken by the engine

  std::vector<int> occupants_;  // by accelerator id - 1
  std::vector<double> busy_;    // accelerators of each type, now
  Time busy_at_ = 0;
  Counters counters_;
  Time idle_since_ = kNever;
  // Follows from the trace: the last time that a job waits for.
  Time last_due_ = -kNever;
  std::vector<UsageSample> usage_;
  std::vector<RecordedLease> leases_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_ROUND_SIMULATION_H_
