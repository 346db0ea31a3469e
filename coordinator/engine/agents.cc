#include "coordinator/engine/agents.h"

#include <algorithm>
#include <cassert>

#include "coordinator/engine/job.h"

namespace gavel::engine {

const Agent* Agents::Find(std::string_view server) const {
  const auto agent = agents_.find(server);
  return agent == agents_.end() ? nullptr : &agent->second;
}

bool Agents::IsReachable(std::string_view server) const {
  const Agent* agent = Find(server);
  return agent != nullptr && agent->reachable;
}

Time Agents::SweptAt(std::string_view server) const {
  const Agent* agent = Find(server);
  return agent == nullptr ? 0 : agent->swept_at;
}

bool Agents::HasOwnCheckpoints(std::string_view server) const {
  if (!own_checkpoints_) return false;
  const Agent* agent = Find(server);
  return agent != nullptr && agent->own_checkpoints;
}

// A job can move only between two servers that keep checkpoints in the same
// way. The reachable servers agree already, so one of them is enough to compare
// with.
bool Agents::FitsCheckpoints(const AgentHello& hello) const {
  const auto other = std::ranges::find_if(agents_, [&](const auto& entry) {
    return entry.second.reachable && entry.first != hello.server;
  });
  return other == agents_.end() ||
         other->second.own_checkpoints == hello.own_checkpoints;
}

void Agents::Join(Time now, const AgentHello& hello, Time swept_at) {
  Agent& agent = agents_[hello.server];
  agent = {hello.incarnation, true, now, hello.host_memory_bytes,
           hello.state_id};
  agent.swept_at = swept_at;
  agent.own_checkpoints = hello.own_checkpoints;
  own_checkpoints_ |= hello.own_checkpoints;
  agent.stream_endpoint = hello.stream_endpoint;
  agent.stream_public_key = hello.stream_public_key;
  has_budgets_ |= hello.host_memory_bytes > 0;
  for (const AcceleratorInfo& info : hello.accelerators) {
    has_budgets_ |= CountsContexts(info);
  }
}

void Agents::NoteHeard(std::string_view server, Time now) {
  const auto agent = agents_.find(server);
  assert(agent != agents_.end());
  agent->second.heard_at = now;
}

void Agents::NoteHealth(std::string_view server,
                        const AcceleratorHealth& told) {
  const auto agent = agents_.find(server);
  assert(agent != agents_.end());
  agent->second.health[told.uuid] = told;
}

void Agents::HearAll(Time now) {
  for (auto& [name, agent] : agents_) {
    if (agent.reachable) agent.heard_at = now;
  }
}

void Agents::Lose(Time now, const std::string& server, bool left) {
  Agent& agent = agents_[server];
  agent.reachable = false;
  agent.left = left;
  agent.heard_at = now;
}

void Agents::DropStranger(const WorkerKey& worker, std::string_view server) {
  const auto stranger = strangers_.find(worker);
  if (stranger != strangers_.end() && stranger->second == server) {
    strangers_.erase(stranger);
  }
}

void Agents::DropStrangersOf(std::string_view server) {
  std::erase_if(strangers_,
                [&](const auto& entry) { return entry.second == server; });
}

void Agents::Rebuild() {
  for (const auto& [name, agent] : agents_) {
    own_checkpoints_ |= agent.own_checkpoints;
  }
}

bool IsNewAgent(const AgentHello& hello, const Agent& before) {
  return before.incarnation != hello.incarnation ||
         before.state_id != hello.state_id;
}

bool IsAnotherAgent(const AgentHello& hello, const Agent& before) {
  return before.incarnation != 0 && before.state_id != hello.state_id;
}

}  // namespace gavel::engine
