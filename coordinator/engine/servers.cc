#include "coordinator/engine/servers.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/type_names.h"
#include "core/text.h"

namespace gavel::engine {

void ServerDesk::Admit(Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  const Agent* known = agents_.Find(hello.server);
  const auto refuse = [&](std::string why) {
    outbox_.EmitNow(action::SendToAgent{
        hello.server,
        AgentRejected{hello.server, outbox_.durable_position(), std::move(why),
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
          options_.agent_timeout_s,
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
  if (!agents_.FitsCheckpoints(hello)) {
    return refuse(
        "the agents of a cluster share their checkpoint directories, or none "
        "does; start all with --own-checkpoints, or none");
  }
  recorder_.Record(now, e);
}

void ServerDesk::Admit(Time now, const event::AgentHeard& e) {
  const AgentHeartbeat& beat = e.heartbeat;
  const Agent* agent = agents_.Find(beat.server);
  // The welcome carries the present term and names nobody: an agent that does
  // not know that term yet, or was given up, says hello with all that runs.
  if (agent == nullptr || agent->incarnation != beat.incarnation ||
      !agent->reachable || beat.highest_seen.term < outbox_.term()) {
    return outbox_.EmitNow(action::SendToAgent{
        beat.server, AgentWelcome{beat.server, outbox_.durable_position(),
                                  options_.heartbeat_interval_s}});
  }
  agents_.NoteHeard(beat.server, now);
  for (const AcceleratorHealth& told : beat.health) {
    NoteHealth(now, beat.server, told);
  }
}

// What is wrong with it for good, and was not when somebody resumed it last.
// The count of errors begins anew with the driver, so another one is news, be
// it lower.
std::string ServerDesk::WhyUnfit(const AcceleratorHealth& told,
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

void ServerDesk::NoteHealth(Time now, const std::string& server,
                            const AcceleratorHealth& told) {
  const AcceleratorId id = cluster_.Find(server, told.uuid);
  if (!id.valid()) return;
  agents_.NoteHealth(server, told);
  const Accelerator& accelerator = cluster_.accelerator(id);
  event::AcceleratorsDrained drained{server, told.uuid};
  drained.why = WhyUnfit(told, accelerator);
  drained.scoped = true;
  drained.errors = told.uncorrectable_errors;
  if (drained.why.empty() || accelerator.drained) return;
  recorder_.Record(now, std::move(drained));
}

void ServerDesk::On(Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  const Agent known = agents_.Entry(hello.server);
  const std::vector<int> before = cluster_.Capacity();
  const size_t types_before = cluster_.types().size();
  if (IsNewAgent(hello, known)) accusations_.ForgetLost(hello.server);
  if (!cluster_.Join(hello.server, hello.accelerators).ok()) return;
  if (cluster_.types().size() > types_before) {
    for (auto& [id, job] : jobs_.live()) {
      measurements_.BarTypes(*job);
      NameInFull(cluster_.types(), &job->spec.throughputs);
      throughputs_.AddGiven(id, job->spec.throughputs);
    }
  }
  const Time swept_at =
      IsAnotherAgent(hello, known)
          ? std::max(leases_.earlier_until(), terms_.LeasesOver(now)) +
                options_.pause_grace_s
          : known.swept_at;
  agents_.Join(now, hello, swept_at);
  // Whoever mends a slow machine starts its agent anew.
  if (known.incarnation != hello.incarnation) {
    for (const AcceleratorId id : cluster_.servers().at(hello.server)) {
      speeds_.Forget(id);
    }
  }
  agenda_.Due(now + options_.agent_timeout_s);
  outbox_.Emit(action::SendToAgent{
      hello.server, AgentWelcome{hello.server, outbox_.position(),
                                 options_.heartbeat_interval_s,
                                 hello.incarnation, hello.state_id}});
  assigned_.Recount();
  Reconcile(now, hello, known);
  if (cluster_.Capacity() != before) agenda_.SolveSoon();
  agenda_.FillSoon();
}

// A new agent has swept what its predecessor recorded, so its list of processes
// is complete: what is missing in it is gone. One with another state directory
// has swept nothing: what it does not list may run until its lease is over.
// What is in any agent's list and not known here must go.
void ServerDesk::Reconcile(Time now, const AgentHello& hello,
                           const Agent& before) {
  const bool stranger_agent = IsAnotherAgent(hello, before);
  const bool swept = IsNewAgent(hello, before) && !stranger_agent;
  std::set<WorkerKey> running;
  for (const RunningWorker& worker : hello.running) {
    running.insert(worker.worker);
  }
  for (auto& [id, live_job] : jobs_.live()) {
    Job& job = *live_job;
    for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
      Worker& worker = job.workers[static_cast<size_t>(rank)];
      const WorkerKey key{id, rank, worker.incarnation};
      const bool live = worker.process == ProcessState::kLaunching ||
                        worker.process == ProcessState::kJoined;
      // The row of its end is lost, and acknowledged: nobody repeats it. A
      // process that has started since has a higher incarnation.
      const bool lost = worker.incarnation < jobs_.numbers_from();
      if (!live || worker.server != hello.server || running.erase(key) > 0) {
        continue;
      }
      if (stranger_agent && worker.held_epoch != 0) {
        // Never renewed again.
        worker.unswept = true;
        processes_.Pause(now, job, rank, PauseTier::kEvict);
        agenda_.Due(now);
      } else if (stranger_agent) {
        // It holds no lease and gets none: its successor has another number.
        leases_.Quarantine(worker, key);
        endings_.ProcessEnded(now, job, rank,
                              EndedWithAgent(hello.server, worker, key));
      } else if ((swept || lost) && !worker.unswept) {
        // Also one that is only being launched: the agent before may have
        // started it, and its word of the end may be on its way yet. A process
        // of the same key would be taken for that one.
        WorkerExited exit = EndedWithAgent(hello.server, worker, key);
        exit.launch_hung &= !lost;
        endings_.ProcessEnded(now, job, rank, exit);
      } else if (worker.process == ProcessState::kLaunching &&
                 worker.launch_repeated_at != kNever) {
        // The launch was lost, or is on its way: once more, by the same key.
        processes_.SendLaunch(now, job, rank);
      }
      // A joined one that has ended: the agent repeats its exit.
    }
  }
  // A hello may be late, and its list older than a process that was abandoned
  // since. Only an agent that starts has swept: another one is asked, and says
  // that it ended.
  leases_.EndQuarantinesOn(hello.server, [&](const WorkerKey& holder) {
    const bool gone = swept && !running.contains(holder);
    if (!gone) running.insert(holder);
    return gone;
  });
  agents_.DropStrangersOf(hello.server);
  for (const WorkerKey& stranger : running) {
    agents_.AddStranger(stranger, hello.server);
    agenda_.Due(now + options_.heartbeat_interval_s);
    outbox_.Emit(action::SendToAgent{
        hello.server,
        StopWorker{hello.server, stranger, outbox_.position(), 0}});
  }
}

void ServerDesk::On(Time now, const event::ServerLost& e) {
  agents_.Lose(now, e.server, e.left);
  cluster_.MarkUnreachable(e.server);
  assigned_.Recount();
  agenda_.SolveSoon();
  endings_.GiveUpFetches(now);
  agenda_.Due(now);  // its workers
}

void ServerDesk::Admit(Time now, const event::AgentLeaves& e) {
  const AgentLeaving& message = e.message;
  const Agent* agent = agents_.Find(message.server);
  if (agent == nullptr || !agent->reachable ||
      agent->incarnation != message.incarnation) {
    return;
  }
  agents_.NoteHeard(message.server, now);
  if (message.gone)
    return recorder_.Record(now, event::ServerLost{message.server, true});
  const std::vector<AcceleratorId>& ids = cluster_.servers().at(message.server);
  const bool told = std::ranges::all_of(
      ids, [&](AcceleratorId id) { return cluster_.accelerator(id).leaving; });
  if (told) return;
  event::AcceleratorsDrained drained{message.server};
  drained.by_agent = true;
  drained.until = now;
  recorder_.Record(now, std::move(drained));
}

}  // namespace gavel::engine
