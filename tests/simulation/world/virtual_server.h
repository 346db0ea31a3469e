// A machine of a VirtualCluster: its clock, the real agent, and the processes
// that the agent starts. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_SERVER_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/agent/agent_machine.h"
#include "tests/simulation/world/machine_clock.h"
#include "tests/simulation/world/virtual_process.h"
#include "tests/simulation/world/virtual_world.h"

namespace gavel {

class VirtualServer {
 public:
  // Borrows the world.
  VirtualServer(std::string name, std::vector<AcceleratorInfo> accelerators,
                MachineClock clock, VirtualWorld& world);

  // The agent first removes the processes that an earlier agent left behind.
  void StartAgent();
  // Its processes die with it (PR_SET_PDEATHSIG), or survive until the next
  // agent removes them.
  void KillAgent(bool processes_survive);
  // Its state directory is lost with it. The next agent counts its incarnations
  // from 1 and does not know the processes of this one, which continue.
  void KillAgentAndState();
  void StallAgent();
  void ResumeAgent();
  bool agent_is_up() const { return agent_ != nullptr; }

  void Receive(const Message& message);  // for the agent
  void ReceiveForWorker(const WorkerKey& worker, const Message& message);

  size_t index() const { return index_; }
  const std::string& name() const { return name_; }
  // The processes of this server. A dead one stays for a moment.
  const std::map<WorkerKey, std::unique_ptr<VirtualProcess>>& processes()
      const {
    return processes_;
  }

 private:
  void Step(const AgentEvent& event);
  void Arm();
  void Do(const agent_action::Send& action);
  void Do(const agent_action::Spawn& action);
  void Do(const agent_action::SignalProcess& action);
  void Do(const agent_action::RecordRunning& action);
  void Do(const agent_action::Quit& action);
  // All simulated servers share one checkpoint directory, so agents send each
  // other no checkpoints.
  void Do(const agent_action::FetchCheckpoint&) {}
  void Do(const agent_action::CancelFetch&) {}
  void Do(const agent_action::OfferCheckpoint&) {}
  template <class A>
  void Do(const A&) {}
  void KillProcesses();

  std::string name_;
  std::vector<AcceleratorInfo> accelerators_;
  MachineClock clock_;
  VirtualWorld& world_;
  size_t index_;  // in the network
  uint64_t incarnation_ = 0;
  uint64_t state_ = 0;  // how many state directories were lost
  // The number of incarnations before this state directory.
  uint64_t first_incarnation_ = 0;
  std::unique_ptr<AgentMachine> agent_;  // null: not running
  bool stalled_ = false;
  std::vector<AgentEvent> held_;  // until it is resumed
  Time armed_ = kNever;
  uint64_t heard_term_ = 0;  // the highest term that it has heard of
  std::vector<RunningWorker> recorded_;
  std::map<WorkerKey, std::unique_ptr<VirtualProcess>> processes_;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_SERVER_H_
