#include "coordinator/engine/agents.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/interactive.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/engine/workers.h"
#include "core/text.h"

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

static std::string WhyUnfit(const AcceleratorHealth& told,
                            const Accelerator& accelerator);
static void NoteHealth(State& s, Time now, const std::string& server,
                       const AcceleratorHealth& told);
static void Reconcile(State& s, Time now, const AgentHello& hello,
                      const Agent& before);

void Admit(State& s, Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  const Agent* known = s.agents.Find(hello.server);
  const auto refuse = [&](std::string why) {
    s.outbox.EmitNow(action::SendToAgent{
        hello.server,
        AgentRejected{hello.server, s.outbox.durable_position(), std::move(why),
                      hello.incarnation, hello.state_id}});
  };
  if (known != nullptr && known->state_id != hello.state_id) {
    // Another state directory: which of the two is newer their incarnations do
    // not say, and what the other one runs this one can't know.
    if (known->reachable) {
      return refuse(StrCat(
          "another agent of server \"", hello.server,
          "\", with another state directory, is at work; stop that one and "
          "wait ",
          s.options.agent_timeout_s,
          " s, or give this one another name with --server"));
    }
  } else if (known != nullptr && hello.incarnation < known->incarnation) {
    return refuse(StrCat("a newer agent of server \"", hello.server,
                         "\" has joined; stop this one, or give the "
                         "servers different names"));
  }
  if (absl::Status joined =
          Cluster::CheckUuids(hello.server, hello.accelerators);
      !joined.ok()) {
    return refuse(std::string(joined.message()));
  }
  if (!s.agents.FitsCheckpoints(hello)) {
    return refuse(
        "the agents of a cluster share their checkpoint directories, or none "
        "does; start all with --own-checkpoints, or none");
  }
  Record(s, now, e);
}

void Admit(State& s, Time now, const event::AgentHeard& e) {
  const AgentHeartbeat& beat = e.heartbeat;
  const Agent* agent = s.agents.Find(beat.server);
  // The welcome carries the present term and names nobody: an agent that does
  // not know that term yet, or was given up, says hello with all that runs.
  if (agent == nullptr || agent->incarnation != beat.incarnation ||
      !agent->reachable || beat.highest_seen.term < s.outbox.term()) {
    return s.outbox.EmitNow(action::SendToAgent{
        beat.server, AgentWelcome{beat.server, s.outbox.durable_position(),
                                  s.options.heartbeat_interval_s}});
  }
  s.agents.NoteHeard(beat.server, now);
  for (const AcceleratorHealth& told : beat.health) {
    NoteHealth(s, now, beat.server, told);
  }
}

// Why the accelerator can't be used, unless that was known when it was resumed
// last; empty if it can. The driver counts errors from its own start, so a
// lower count is a new one, too.
std::string WhyUnfit(const AcceleratorHealth& told,
                     const Accelerator& accelerator) {
  if (!told.failure.empty()) return told.failure;
  if (told.uncorrectable_errors == 0 ||
      told.uncorrectable_errors == accelerator.errors_known) {
    return "";
  }
  return StrCat(
      "its memory had ", told.uncorrectable_errors,
      " uncorrectable errors; reset or replace it, then `gavel resume ",
      accelerator.server, "/", told.uuid, "`");
}

void NoteHealth(State& s, Time now, const std::string& server,
                const AcceleratorHealth& told) {
  const AcceleratorId id = s.cluster.Find(server, told.uuid);
  if (!id.valid()) return;
  s.agents.NoteHealth(server, told);
  if (told.utilisation_percent > 0) NoteUse(s, now, id);
  const Accelerator& accelerator = s.cluster.accelerator(id);
  event::AcceleratorsDrained drained{server, told.uuid};
  drained.why = WhyUnfit(told, accelerator);
  drained.scoped = true;
  drained.errors = told.uncorrectable_errors;
  if (drained.why.empty() || accelerator.drained) return;
  Record(s, now, std::move(drained));
}

void On(State& s, Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  const Agent known = s.agents.Entry(hello.server);
  const std::vector<int> before = s.cluster.Capacity();
  const size_t types_before = s.cluster.types().size();
  if (IsNewAgent(hello, known)) s.accusations.ForgetLost(hello.server);
  if (!s.cluster.Join(hello.server, hello.accelerators, hello.rack).ok())
    return;
  if (s.cluster.types().size() > types_before) {
    for (auto& [id, job] : s.jobs.live()) LearnTypes(s, *job);
  }
  for (auto& [id, job] : s.jobs.live()) BarServers(s, *job);
  const Time swept_at =
      IsAnotherAgent(hello, known)
          ? std::max(s.leases.earlier_until(), s.terms.LeasesOver(now)) +
                s.options.pause_grace_s
          : known.swept_at;
  s.agents.Join(now, hello, swept_at);
  // After a slow machine was mended its agent is started again.
  if (known.incarnation != hello.incarnation) {
    for (const AcceleratorId id : s.cluster.servers().at(hello.server)) {
      s.speeds.Forget(id);
    }
  }
  s.agenda.Due(now + s.options.agent_timeout_s);
  s.outbox.Emit(action::SendToAgent{
      hello.server, AgentWelcome{hello.server, s.outbox.position(),
                                 s.options.heartbeat_interval_s,
                                 hello.incarnation, hello.state_id}});
  s.assigned.Recount();
  Reconcile(s, now, hello, known);
  if (s.cluster.Capacity() != before) s.agenda.SolveSoon();
  s.agenda.FillSoon();
}

// A new agent has swept the processes that its predecessor recorded, so its
// list is complete: a process that is not in it is gone. An agent with another
// state directory has swept nothing: a process that it does not list may run
// until its lease is over. A process that an agent lists and the engine does
// not know is ended.
void Reconcile(State& s, Time now, const AgentHello& hello,
               const Agent& before) {
  const bool stranger_agent = IsAnotherAgent(hello, before);
  const bool swept = IsNewAgent(hello, before) && !stranger_agent;
  std::set<WorkerKey> running;
  for (const RunningWorker& worker : hello.running) {
    running.insert(worker.worker);
  }
  for (auto& [id, live_job] : s.jobs.live()) {
    Job& job = *live_job;
    for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
      Worker& worker = job.workers[static_cast<size_t>(rank)];
      const WorkerKey key{id, rank, worker.incarnation};
      const bool live = worker.process == ProcessState::kLaunching ||
                        worker.process == ProcessState::kJoined;
      // The row of its end is lost, and acknowledged: nobody repeats it. A
      // process that has started since has a higher incarnation.
      const bool lost = worker.incarnation < s.jobs.numbers_from();
      if (!live || worker.server != hello.server || running.erase(key) > 0) {
        continue;
      }
      if (stranger_agent && worker.held_epoch != 0) {
        // Never renewed again.
        worker.unswept = true;
        Pause(s, now, job, rank, PauseTier::kEvict);
        s.agenda.Due(now);
      } else if (stranger_agent) {
        // It holds no lease and gets none: its successor has another number.
        s.leases.Quarantine(worker, key);
        ProcessEnded(s, now, job, rank,
                     EndedWithAgent(hello.server, worker, key));
      } else if ((swept || lost) && !worker.unswept) {
        // Also one that is only being launched: the agent before may have
        // started it, and its word of the end may be on its way yet. A process
        // of the same key would be taken for that one.
        WorkerExited exit = EndedWithAgent(hello.server, worker, key);
        exit.launch_hung &= !lost;
        ProcessEnded(s, now, job, rank, exit);
      } else if (worker.process == ProcessState::kLaunching &&
                 worker.launch_repeated_at != kNever) {
        // The launch was lost, or is on its way: once more, by the same key.
        SendLaunch(s, now, job, rank);
      }
      // A joined one that has ended: the agent repeats its exit.
    }
  }
  // A hello may be late, and its list older than a process that was abandoned
  // since. Only an agent that starts has swept: another one is asked, and says
  // that it ended.
  s.leases.EndQuarantinesOn(hello.server, [&](const WorkerKey& holder) {
    const bool gone = swept && !running.contains(holder);
    if (!gone) running.insert(holder);
    return gone;
  });
  s.agents.DropStrangersOf(hello.server);
  for (const WorkerKey& stranger : running) {
    s.agents.AddStranger(stranger, hello.server);
    s.agenda.Due(now + s.options.heartbeat_interval_s);
    s.outbox.Emit(action::SendToAgent{
        hello.server,
        StopWorker{hello.server, stranger, s.outbox.position(), 0}});
  }
}

void On(State& s, Time now, const event::ServerLost& e) {
  s.agents.Lose(now, e.server, e.left);
  s.cluster.MarkUnreachable(e.server);
  s.assigned.Recount();
  s.agenda.SolveSoon();
  GiveUpFetches(s, now);
  s.agenda.Due(now);  // its workers
}

void Admit(State& s, Time now, const event::AgentLeaves& e) {
  const AgentLeaving& message = e.message;
  const Agent* agent = s.agents.Find(message.server);
  if (agent == nullptr || !agent->reachable ||
      agent->incarnation != message.incarnation) {
    return;
  }
  s.agents.NoteHeard(message.server, now);
  if (message.gone)
    return Record(s, now, event::ServerLost{message.server, true});
  const std::vector<AcceleratorId>& ids =
      s.cluster.servers().at(message.server);
  const bool told = std::ranges::all_of(
      ids, [&](AcceleratorId id) { return s.cluster.accelerator(id).leaving; });
  if (told) return;
  event::AcceleratorsDrained drained{message.server};
  drained.by_agent = true;
  drained.until = now;
  Record(s, now, std::move(drained));
}

}  // namespace gavel::engine
