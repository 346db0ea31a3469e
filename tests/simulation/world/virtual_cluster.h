// A whole system in one thread and in virtual time: the real engine, agents and
// lease machines, over a simulated network, disks, clocks and processes, which
// may fail. Invariants are checked after every step of the engine, and its
// state is compared with the world's truth. Used by tests/simulation and by
// scenarios of tests. Not thread-safe. Deterministic by seed.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CLUSTER_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CLUSTER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "tests/engine/invariants.h"
#include "tests/simulation/world/machine_clock.h"
#include "tests/simulation/world/trial_truth.h"
#include "tests/simulation/world/virtual_bidder.h"
#include "tests/simulation/world/virtual_journal.h"
#include "tests/simulation/world/virtual_server.h"
#include "tests/simulation/world/virtual_world.h"

namespace gavel {

struct VirtualClusterOptions {
  EngineOptions engine;
  std::string policy = "max_min_fairness_perf";
  NetworkFaults network;
  CheckpointFaults checkpoints;
  double commit_s = 0.002;  // journal append to durable
  double solve_s = 0.001;
  size_t snapshot_rows = 0;  // between snapshots, at least; 0: there are none
  double coordinator_clock_rate = 1;  // its seconds in one of the world
  uint64_t seed = 1;
};

class VirtualCluster {
 public:
  explicit VirtualCluster(VirtualClusterOptions options);
  ~VirtualCluster();

  void AddServer(const std::string& name,
                 const std::vector<AcceleratorInfo>& accelerators,
                 MachineClock clock = {});
  // Submits as a client would. Returns the number with which action::Reply
  // answers, or 0 when there is no coordinator.
  uint64_t Submit(const JobSpec& spec, const VirtualTraining& training);
  uint64_t Command(JobId job, CommandKind kind);
  // A process on this server that bids for the app from now on; earlier ones
  // continue, and are refused.
  void StartBidder(const std::string& app, const std::string& server,
                   BidHabit habit);

  void RunUntil(Time time);
  // Runs until every job has ended; false when some have not by `limit`.
  bool RunUntilAllEnded(Time limit);

  // ---- faults
  void KillWorker(const WorkerId& worker);
  void StallWorker(const WorkerId& worker);
  void HangWorker(const WorkerId& worker);
  void ResumeWorkers();  // all that are stalled
  void KillStuckWorkers();
  void KillAgent(const std::string& server, bool processes_survive = false);
  void KillAgentAndState(const std::string& server);
  void StartAgent(const std::string& server);
  void StallAgent(const std::string& server);
  void ResumeAgent(const std::string& server);
  void KillCoordinator();
  void StartCoordinator();
  // Takes effect at the coordinator's next start.
  void SetLeaseDuration(double seconds) {
    options_.engine.lease_duration_s = seconds;
  }
  void StallCoordinator();
  void ResumeCoordinator();
  // The coordinator is taken for dead and its lock is gone. Another one starts
  // beside it, and each server is connected to the new one, the old one or
  // both. The old one continues, or stands still until it is woken. A commit, a
  // grant or a look at its lock tells it that it was replaced and ends it. Does
  // nothing when no coordinator runs.
  void TakeOver();
  void WakeFormerCoordinator();
  void KillFormerCoordinator();
  // Starts a coordinator that has lost the last rows of its journal and has
  // started `starts` times since (at least once). It receives messages but its
  // own are lost, and it has to halt as soon as a peer shows it a row that it
  // lost.
  void StartForgetfulCoordinator(size_t rows_lost, uint64_t starts);
  // Nothing passes between the server (its agent and workers) and the rest.
  void SetPartitioned(const std::string& server, bool partitioned);
  void SetCut(const std::string& server, Direction direction, bool cut);
  // A process that takes the accelerator from now on can't use it, until it is
  // mended.
  void BreakAccelerator(const std::string& uuid) { world_.broken.insert(uuid); }
  void MendAccelerators() { world_.broken.clear(); }
  void KillBidders(const std::string& app);
  void SetBidHabit(BidHabit habit);  // of all that are there
  // All bidders answer in time from now on, which has to show.
  void HealBidders();
  void SetNetworkFaults(const NetworkFaults& faults);
  void SetCheckpointFaults(const CheckpointFaults& faults);
  void DamageCheckpoint(JobId job);
  VirtualJournal& journal() { return journal_; }

  Time now() const { return world_.now(); }
  const Engine& engine() const { return *present_.engine; }
  // By the coordinator's clock.
  Time engine_now() const { return TimeOf(present_); }
  bool coordinator_up() const {
    return present_.engine != nullptr && !forgetful_;
  }
  const std::vector<std::string>& violations() const {
    return world_.truth.violations();
  }
  const VirtualWorld& world() const { return world_; }
  // As the present coordinator has noted them.
  const TrialTruth& trials() const { return present_.trials; }
  // Steps that the live process of a job has done, or those of the job's last
  // generation when there is no process.
  uint64_t StepsDone(JobId job) const;
  // The steps that the job's process has done and that a pause would save; 0 if
  // there is no such process (VirtualProcess::SavesOnPause).
  uint64_t StepsToSave(JobId job) const;
  // Names the leftovers of jobs that have ended: processes, and accelerators in
  // use or in quarantine. Empty when there are none.
  std::string Leftovers() const;
  // Called with every action that the engine wants done.
  void set_observer(std::function<void(Time, const Action&)> observer) {
    observer_ = std::move(observer);
  }
  // Called with a line for what happens to machines and processes.
  void set_story(std::function<void(Time, const std::string&)> story) {
    world_.story = std::move(story);
  }

 private:
  // A run of days has fewer events; a run that makes no progress has no end of
  // them.
  static constexpr uint64_t kEventsMax = 5'000'000;

  // A coordinator's process.
  struct Coordinator {
    std::unique_ptr<Engine> engine;  // null: it does not run
    MachineClock clock;              // goes on with its journal
    Time started_at = 0;             // by that clock: nothing is before it
    uint64_t life = 0;               // tasks of a dead one do nothing
    uint64_t writer = 0;             // of the journal
    bool stalled = false;
    std::vector<Event> held;  // until it is resumed
    Time armed = kNever;
    Invariants invariants;
    TrialTruth trials;
    // The last row that it recovered at its start, and the last one that it
    // wrote in each term.
    uint64_t seq_recovered = 0;
    std::map<uint64_t, uint64_t> seq_written;
  };
  // The coordinators to which a server is connected while there are two.
  enum class Peer : uint8_t { kBoth, kPresent, kFormer };

  Time TimeOf(const Coordinator& coordinator) const {
    return std::max(coordinator.started_at,
                    coordinator.clock.Shows(world_.now()));
  }
  // Null when that coordinator is dead.
  Coordinator* OfLife(uint64_t life);
  Coordinator& HearsFrom(size_t server);
  bool Reaches(const Coordinator& coordinator, size_t server) const;
  void LookAtLock();

  bool RunOne(Time limit);
  void Recover(size_t rows);
  void BeginTerm(uint64_t last);
  std::unique_ptr<Engine> Recovered(size_t from, size_t rows);
  bool AllOnDisk() const;
  void MaybeSnapshot();
  void Step(Coordinator& coordinator, const Event& event);
  void StepUnheard(Coordinator& coordinator, const Actions& actions);
  bool HasRow(const Coordinator& coordinator,
              const JournalPosition& shown) const;
  void CheckBeliefs();
  void CheckTrials(Coordinator& coordinator, Time now, const Actions& actions);
  void Do(Coordinator& coordinator, action::Persist& action);
  void Do(Coordinator& coordinator, action::SolvePolicy& action);
  void Do(Coordinator& coordinator, action::SendToWorker& action);
  void Do(Coordinator& coordinator, action::SendToAgent& action);
  void Do(Coordinator& coordinator, action::SendToBidder& action);
  void Do(Coordinator&, action::Reply&) {}
  void Do(Coordinator& coordinator, action::Halt& action);
  void Arm(Coordinator& coordinator);
  void CommitFailed(uint64_t life);
  static std::string Durable(const Engine& engine);
  VirtualServer& ServerOf(const std::string& name) {
    return *servers_.at(name);
  }
  VirtualProcess* Find(const WorkerId& worker);
  template <class F>
  void ForEachProcess(F f) const;

  VirtualClusterOptions options_;
  VirtualWorld world_;
  VirtualJournal journal_;
  std::unique_ptr<Policy> policy_;
  Coordinator present_;
  Coordinator former_;  // was replaced and does not know it, or does not run
  uint64_t lives_ = 0;  // of coordinators
  bool forgetful_ = false;
  uint64_t begun_ = 0;  // the highest term; outlasts the journal's end
  struct EngineSnapshot {
    size_t rows = 0;  // of the journal that it stands for
    std::string bytes;
  };
  EngineSnapshot snapshot_;
  std::string durable_;  // what the dead coordinator knew; empty: don't compare
  uint64_t submissions_ = 0;
  uint64_t events_ = 0;
  std::map<std::string, std::unique_ptr<VirtualServer>> servers_;
  std::vector<VirtualServer*> server_of_;  // by index
  std::vector<Peer> peers_;                // by index
  std::map<BidderKey, std::unique_ptr<VirtualBidder>> bidders_;
  uint64_t bidders_started_ = 0;
  std::function<void(Time, const Action&)> observer_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_CLUSTER_H_
