// Checkpoints that move between servers which share no directory: where each
// job's latest one lies, from where it is fetched, and what waits for it.
// Nothing here concerns clusters whose servers share one.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/worker_limits.h"
#include "core/text.h"

namespace gavel {
namespace {

uint64_t NewestEpoch(const Job& job) {
  uint64_t newest = 0;
  for (const auto& [server, epoch] : job.checkpoint_epochs) {
    newest = std::max(newest, epoch);
  }
  return newest;
}

Generation Acknowledged(const Job& job) {
  Generation latest = job.restored;
  for (const Worker& worker : job.workers) {
    latest = std::max(latest, worker.progress.last_generation);
  }
  return latest;
}

}  // namespace

bool Engine::HasOwnCheckpoints(const std::string& server) const {
  if (!own_checkpoints_) return false;
  const auto agent = agents_.find(server);
  return agent != agents_.end() && agent->second.own_checkpoints;
}

// All servers share their checkpoints, or none does: a job could be moved
// between two of one kind only. Those that are there agree already.
bool Engine::FitsCheckpoints(const AgentHello& hello) const {
  const auto other =
      std::find_if(agents_.begin(), agents_.end(), [&](const auto& entry) {
        return entry.second.reachable && entry.first != hello.server;
      });
  return other == agents_.end() ||
         other->second.own_checkpoints == hello.own_checkpoints;
}

// Whoever runs on `server` writes the latest generation from here on.
void Engine::NoteWriter(Job& job, const std::string& server, uint64_t epoch) {
  if (!HasOwnCheckpoints(server)) return;
  uint64_t& newest = job.checkpoint_epochs[server];
  newest = std::max(newest, epoch);
}

// A process has restored on `server`: what is the latest elsewhere is there
// now, too.
void Engine::NoteRestored(Job& job, const std::string& server) {
  if (!HasOwnCheckpoints(server) || job.checkpoint_epochs.empty()) return;
  job.checkpoint_epochs[server] = NewestEpoch(job);
}

std::vector<std::string> Engine::CheckpointServers(const Job& job) const {
  std::vector<std::string> servers;
  const uint64_t newest = NewestEpoch(job);
  for (const auto& [server, epoch] : job.checkpoint_epochs) {
    if (epoch == newest) servers.push_back(server);
  }
  return servers;
}

bool Engine::IsStranded(const Job& job) const {
  if (job.checkpoint_epochs.empty()) return false;
  const std::vector<std::string> servers = CheckpointServers(job);
  return !servers.empty() &&
         std::ranges::none_of(servers, [&](const std::string& server) {
           const auto agent = agents_.find(server);
           return agent != agents_.end() && agent->second.reachable;
         });
}

// What a process of `job` on `server` needs before it starts; empty: nothing.
CheckpointSource Engine::SourceFor(const Job& job,
                                   const std::string& server) const {
  CheckpointSource source;
  if (job.checkpoint_epochs.empty()) return source;
  const std::vector<std::string> servers = CheckpointServers(job);
  if (servers.empty() || !HasOwnCheckpoints(server) ||
      std::ranges::find(servers, server) != servers.end()) {
    return source;
  }
  source.server = servers.front();
  const Generation acknowledged = Acknowledged(job);
  if (acknowledged > job.forgone) source.at_least = acknowledged;
  for (const std::string& candidate : servers) {
    const auto agent = agents_.find(candidate);
    if (agent == agents_.end() || !agent->second.reachable) continue;
    source.server = candidate;
    source.endpoint = agent->second.stream_endpoint;
    source.public_key = agent->second.stream_public_key;
    break;
  }
  return source;
}

// Tells the source that `reader` may read; every time that the reader is told
// to, for either may be lost.
void Engine::OfferCheckpoint(const Job& job, const CheckpointSource& source,
                             const std::string& reader) {
  if (source.endpoint.empty()) return;
  const auto agent = agents_.find(reader);
  if (agent == agents_.end()) return;
  Emit(action::SendToAgent{
      source.server,
      ServeCheckpoint{source.server, position(), job.id,
                      job.spec.checkpoint_directory,
                      agent->second.stream_public_key, job.spec.unix_user}});
}

// A job is to go on elsewhere in the next round: its last generation goes ahead
// while it still trains, and after the pause only what has changed since.
void Engine::Prefetch(const Job& job) {
  if (job.planned.empty() || !job.AnyLive()) return;
  const std::string& server = cluster_.accelerator(job.planned.front()).server;
  const CheckpointSource source = SourceFor(job, server);
  if (source.endpoint.empty()) return;
  OfferCheckpoint(job, source, server);
  Emit(action::SendToAgent{
      server, PrefetchCheckpoint{server, position(), job.id,
                                 job.spec.checkpoint_directory, source,
                                 job.spec.unix_user}});
}

// The ranks of a gang write into one directory.
bool Engine::ShareCheckpoints(const std::vector<AcceleratorId>& places) const {
  return std::all_of(places.begin(), places.end(), [&](AcceleratorId place) {
    const std::string& first = cluster_.accelerator(places.front()).server;
    const std::string& server = cluster_.accelerator(place).server;
    return server == first || !HasOwnCheckpoints(server);
  });
}

// The jobs whose processes wait for a checkpoint that nobody can send any more:
// others may have their accelerators.
void Engine::GiveUpFetches(Time now) {
  for (auto& [id, live] : live_) {
    Job& job = *live;
    if (!job.active() || !IsStranded(job)) continue;
    const bool waits = std::ranges::any_of(job.workers, [](const Worker& w) {
      return w.process == ProcessState::kLaunching;
    });
    if (!waits) continue;
    Assign(now, job, {}, JobId());
    for (Worker& worker : job.workers) {
      if (worker.process != ProcessState::kLaunching) continue;
      TellToStop(now, job, worker, /*grace_s=*/0);
    }
  }
}

// The launch of a process on `server` was ended as no byte of its checkpoint
// came any more. It is tried again, but not for ever: others may have its
// accelerators meanwhile. Both agents are there, so only a person can tell why
// they do not reach each other.
bool Engine::GiveUpFetching(Time now, Job& job, const std::string& server) {
  if (++job.failed_starts < StartsMax(job)) return false;
  EndJob(now, job, JobState::kHeld,
         Reason{ReasonCode::kHeldFetch,
                StrCat(job.id.value(), " ", SourceFor(job, server).server,
                       " to ", server),
                StartTimeout(job, options_),
                static_cast<double>(job.failed_starts)});
  return true;
}

// The word of the job's user, or of an operator: the checkpoints that can't be
// reached are forgone.
void Engine::ForgoCheckpoints(Job& job) {
  job.forgone = std::max(job.forgone, Acknowledged(job));
  for (const std::string& server : CheckpointServers(job)) {
    job.checkpoint_epochs.erase(server);
  }
  unsolved_ = true;
  fill_due_ = true;
}

void Engine::Admit(Time now, const event::CheckpointComing& e) {
  const FetchProgress& progress = e.progress;
  Worker* worker = Find(progress.worker);
  if (worker == nullptr || worker->process != ProcessState::kLaunching ||
      worker->server != progress.server) {
    return;
  }
  const auto [known, first] = fetching_.try_emplace(progress.worker, progress);
  // As long as bytes come the launch is not overdue.
  if (first || progress.bytes_done != known->second.bytes_done) {
    worker->launch_sent_at = now;
  }
  known->second = progress;
}

Reason Engine::WhyMoving(const Job& job, int rank) const {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const CheckpointSource source = SourceFor(job, worker.server);
  const auto known = fetching_.find({job.id, rank, worker.incarnation});
  std::string way = StrCat(source.server, " to ", worker.server);
  if (known == fetching_.end()) {
    return {ReasonCode::kMoving, std::move(way), 0, 0};
  }
  const FetchProgress& progress = known->second;
  if (!progress.waits_for.empty()) {
    StrAppend(&way, " (", progress.waits_for, ")");
  }
  return {ReasonCode::kMoving, std::move(way),
          static_cast<double>(progress.bytes_done),
          static_cast<double>(progress.bytes_total)};
}

Reason Engine::WhyStranded(const Job& job) const {
  return {ReasonCode::kStranded,
          StrCat(job.id.value(), " ",
                 absl::StrJoin(CheckpointServers(job), " and ")),
          static_cast<double>(Acknowledged(job).step), 0};
}

// A gang that could run but for its checkpoints.
bool Engine::IsTooWideForOneServer(const Job& job) const {
  if (job.scale_factor < 2) return false;
  int most = 0;
  bool own = false;
  for (const auto& [server, accelerators] : cluster_.servers()) {
    own |= HasOwnCheckpoints(server);
    std::map<int, int> by_type;
    for (const AcceleratorId id : accelerators) {
      if (cluster_.accelerator(id).state != AcceleratorState::kUsable) continue;
      most = std::max(most, ++by_type[cluster_.TypeOf(id)]);
    }
  }
  return own && most < job.scale_factor;
}

}  // namespace gavel
