// A whole system in one thread and in virtual time: the real engine, the real
// agents and lease machines, over a network, disk and processes that are
// simulated and may fail. Tests use it today; it is what the simulator grows
// from. Not thread-safe. Deterministic by seed.
#ifndef GAVEL_SIMULATOR_VIRTUAL_CLUSTER_H_
#define GAVEL_SIMULATOR_VIRTUAL_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/agent_machine.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/invariants.h"
#include "coordinator/policy/policy.h"
#include "simulator/event_queue.h"
#include "simulator/virtual_process.h"

namespace gavel {

// Probabilities are by message, in [0, 1].
struct NetworkFaults {
  double drop = 0;
  double duplicate = 0;
  double delay_s_min = 0.0005;
  double delay_s_max = 0.0005;  // above the least: messages overtake
};

struct VirtualClusterOptions {
  EngineOptions engine;
  std::string policy = "max_min_fairness_perf";
  NetworkFaults network;
  double commit_s = 0.002;  // journal append to durable
  double solve_s = 0.001;
  uint64_t seed = 1;
};

class VirtualCluster {
 public:
  explicit VirtualCluster(VirtualClusterOptions options);
  ~VirtualCluster();

  void AddServer(const std::string& name,
                 const std::vector<AcceleratorInfo>& accelerators);
  // Submits as a client would. The job's id, or what was refused, is seen in
  // the engine at once (the reply when it is durable).
  void Submit(const JobSpec& spec, const VirtualTraining& training);
  void Command(JobId job, CommandKind kind);

  void RunUntil(Time time);
  // Until every job has ended; false when some have not by `limit`.
  bool RunUntilAllEnded(Time limit);

  void KillWorker(const WorkerId& worker);
  void KillAgent(const std::string& server);  // its workers die with it
  void StartAgent(const std::string& server);
  void KillCoordinator();
  void StartCoordinator();
  // Nothing passes between the server (its agent and workers) and the rest.
  void SetPartitioned(const std::string& server, bool partitioned);

  Time now() const { return queue_.now(); }
  const Engine& engine() const { return *engine_; }
  bool coordinator_up() const { return engine_ != nullptr; }
  // Replies to Submit and Command, in order: (job, error).
  const std::vector<std::pair<JobId, std::string>>& replies() const {
    return replies_;
  }
  const std::string& halted() const { return halted_; }
  // What was broken, in the order in which it was seen; to be empty.
  const std::vector<std::string>& violations() const { return violations_; }
  // Steps that the live process of a job has done; of its last generation
  // when there is none.
  uint64_t StepsDone(JobId job) const;
  // Called with every action that the engine wants done.
  void set_observer(std::function<void(Time, const Action&)> observer) {
    observer_ = std::move(observer);
  }

 private:
  struct Server;
  struct Row {
    uint64_t seq = 0;
    uint64_t term = 0;
    Time time = 0;
    std::string bytes;
  };

  void StepEngine(const Event& event);
  void Do(const Action& action);
  void ArmEngine();
  void FromAgent(const std::string& server, const Message& message);
  void FromWorker(const Message& message);
  void ToWorker(const WorkerKey& key, const Message& message);
  void Deliver(const std::string& server, std::function<void()> arrive);
  void StepAgent(Server& server, const AgentEvent& event);
  void DoAgent(Server& server, const AgentAction& action);
  void ArmAgent(Server& server);
  void Spawn(Server& server, const LaunchWorker& launch);
  void Hold(const WorkerKey& key, const std::string& uuid, uint64_t bytes);
  void Violation(std::string what);

  VirtualClusterOptions options_;
  EventQueue queue_;
  std::mt19937_64 random_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Engine> engine_;
  uint64_t engine_life_ = 0;  // tasks of a dead coordinator do nothing
  Time armed_engine_ = kNever;
  Invariants invariants_;
  std::vector<Row> journal_;  // what is on disk
  uint64_t submissions_ = 0;
  std::map<std::string, VirtualTraining> training_;  // by job name
  std::map<std::string, std::unique_ptr<Server>> servers_;
  std::map<JobId, Generation> generations_;  // latest committed
  std::map<JobId, VirtualGang> gangs_;
  // By accelerator uuid: who uses it, and how many of its slots.
  std::map<std::string, std::map<WorkerKey, int>> in_use_;
  // Of an accelerator's memory, by uuid.
  std::map<std::string, std::map<WorkerKey, uint64_t>> memory_;
  std::set<std::string> partitioned_;
  std::vector<std::pair<JobId, std::string>> replies_;
  std::vector<std::string> violations_;
  std::string halted_;
  std::function<void(Time, const Action&)> observer_;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_VIRTUAL_CLUSTER_H_
