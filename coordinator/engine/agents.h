// The table of the servers' agents: whether each can be reached, its last
// reports about its server, and the processes there that the engine does not
// want.
//
// Not thread-safe. Snapshot fields: the agents, and whether any memory budget
// was reported. A restart forgets strangers, since agents list them again.
#ifndef GAVEL_COORDINATOR_ENGINE_AGENTS_H_
#define GAVEL_COORDINATOR_ENGINE_AGENTS_H_

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

class Agents {
 public:
  using All = std::map<std::string, Agent, std::less<>>;
  const All& all() const { return agents_; }
  // Null: no such server.
  const Agent* Find(std::string_view server) const;
  bool IsReachable(std::string_view server) const;
  // Processes may still run on the server that were started under another state
  // directory of its agent, which the agent can't stop. From this time on their
  // leases are over, and the steps that they were in have ended.
  Time SweptAt(std::string_view server) const;
  // Whether the server keeps checkpoints on a disk of its own.
  bool HasOwnCheckpoints(std::string_view server) const;
  bool any_own_checkpoints() const { return own_checkpoints_; }  // or had
  // Whether the server of `hello` keeps checkpoints as the reachable ones do:
  // either all servers share them, or none does.
  bool FitsCheckpoints(const AgentHello& hello) const;
  // Whether an agent has reported a memory budget of a server or accelerator.
  bool has_budgets() const { return has_budgets_; }

  // The agent of that server as it was. Adds an empty one for a new server.
  const Agent& Entry(const std::string& server) { return agents_[server]; }
  // Joins with `hello`; `swept_at` as in Agent.
  void Join(Time now, const AgentHello& hello, Time swept_at);
  void NoteHeard(std::string_view server, Time now);
  void NoteHealth(std::string_view server, const AcceleratorHealth& told);
  void HearAll(Time now);  // NoteHeard for all reachable agents
  // The agent is not reachable any more. `left`: it ended in order; otherwise
  // it was silent for too long.
  void Lose(Time now, const std::string& server, bool left);
  void Forget(const std::string& server) { agents_.erase(server); }

  // Processes that the engine does not want, and their servers. Sweep asks
  // the agents to stop them until they are gone.
  using Strangers = std::map<WorkerKey, std::string>;
  const Strangers& strangers() const { return strangers_; }
  void AddStranger(const WorkerKey& worker, const std::string& server) {
    strangers_[worker] = server;
  }
  void DropStranger(const WorkerKey& worker, std::string_view server);
  void DropStrangersOf(std::string_view server);
  void DropStrangers() { strangers_.clear(); }

  static auto State(auto& a) { return std::tie(a.agents_, a.has_budgets_); }
  // Call this after State was read.
  void Rebuild();

 private:
  All agents_;
  bool own_checkpoints_ = false;
  bool has_budgets_ = false;
  Strangers strangers_;
};

// Whether `hello` is from another process than before, or from one with another
// state directory.
bool IsNewAgent(const AgentHello& hello, const Agent& before);
// Whether `hello` is from an agent with another state directory. Such an agent
// has not ended the processes that ran under the directory before.
bool IsAnotherAgent(const AgentHello& hello, const Agent& before);

// Servers that join, fall silent and leave. Admits hellos and heartbeats of
// agents, applies ServerJoined and ServerLost, and compares the processes that
// an agent lists with those that the engine knows. Not thread-safe; stateless.

void Admit(State& s, Time now, const event::ServerJoined& e);
void Admit(State& s, Time now, const event::AgentHeard& e);
void On(State& s, Time now, const event::ServerJoined& e);
void On(State& s, Time now, const event::ServerLost& e);
// Records the event once, although the agent repeats its message.
void Admit(State& s, Time now, const event::AgentLeaves& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_AGENTS_H_
