// The agents of servers: which can be reached, what they have told of their
// server, and processes on it that nobody knows.
//
// Not thread-safe. Snapshot fields: the agents, and whether any memory budget
// was told; strangers are forgotten by a restart, as agents list them again.
#ifndef GAVEL_COORDINATOR_ENGINE_AGENTS_H_
#define GAVEL_COORDINATOR_ENGINE_AGENTS_H_

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "coordinator/engine/job_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class Agents {
 public:
  using All = std::map<std::string, Agent, std::less<>>;
  const All& all() const { return agents_; }
  // Null: no such server.
  const Agent* Find(std::string_view server) const;
  bool IsReachable(std::string_view server) const;
  // When the leases are over of whoever ran on that server under another state
  // directory of its agent, and the steps that they may have been in.
  Time SweptAt(std::string_view server) const;
  // Its checkpoints are on its own disk.
  bool HasOwnCheckpoints(std::string_view server) const;
  bool any_own_checkpoints() const { return own_checkpoints_; }  // or had
  // All servers share their checkpoints, or none does.
  bool FitsCheckpoints(const AgentHello& hello) const;
  // Some accelerator or server told how much memory it has.
  bool has_budgets() const { return has_budgets_; }

  // The agent of that server as it was; an empty one, if it is new.
  const Agent& Entry(const std::string& server) { return agents_[server]; }
  // Joins with `hello`; `swept_at` as in Agent.
  void Join(Time now, const AgentHello& hello, Time swept_at);
  void NoteHeard(std::string_view server, Time now);
  void NoteHealth(std::string_view server, const AcceleratorHealth& told);
  void HearAll(Time now);  // all that are reachable
  // Silent for too long; `left`: it ended in order.
  void Lose(Time now, const std::string& server, bool left);
  void Forget(const std::string& server) { agents_.erase(server); }

  // Processes that nobody wants, and their servers: stopped until gone.
  using Strangers = std::map<WorkerKey, std::string>;
  const Strangers& strangers() const { return strangers_; }
  void AddStranger(const WorkerKey& worker, const std::string& server) {
    strangers_[worker] = server;
  }
  void DropStranger(const WorkerKey& worker, std::string_view server);
  void DropStrangersOf(std::string_view server);
  void DropStrangers() { strangers_.clear(); }

  static auto State(auto& a) { return std::tie(a.agents_, a.has_budgets_); }
  // After State was read.
  void Rebuild();

 private:
  All agents_;
  bool own_checkpoints_ = false;
  bool has_budgets_ = false;
  Strangers strangers_;
};

// Another process than before, or another state directory.
bool IsNewAgent(const AgentHello& hello, const Agent& before);
// One with another state directory: it has not swept what ran under that one.
bool IsAnotherAgent(const AgentHello& hello, const Agent& before);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_AGENTS_H_
