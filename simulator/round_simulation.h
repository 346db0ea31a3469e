// The simulation of rounds: the real engine, and workers that obey it at once
// over a perfect network. Used through TraceSimulation. Not thread-safe.
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
#include "coordinator/engine/engine.h"
#include "core/queue.h"
#include "simulator/simulated_work.h"
#include "simulator/timed_queue.h"
#include "simulator/trace_simulation.h"

namespace gavel {

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
  std::vector<UsageSample> usage_;
  std::vector<RecordedLease> leases_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_ROUND_SIMULATION_H_
