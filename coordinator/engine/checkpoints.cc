#include "coordinator/engine/checkpoints.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/text.h"

namespace gavel::engine {
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

void Checkpoints::NoteWriter(Job& job, const std::string& server,
                             uint64_t epoch) {
  if (!agents_.HasOwnCheckpoints(server)) return;
  uint64_t& newest = job.checkpoint_epochs[server];
  newest = std::max(newest, epoch);
}

void Checkpoints::NoteRestored(Job& job, const std::string& server) {
  if (!agents_.HasOwnCheckpoints(server) || job.checkpoint_epochs.empty())
    return;
  job.checkpoint_epochs[server] = NewestEpoch(job);
}

std::vector<std::string> Checkpoints::CheckpointServers(const Job& job) const {
  std::vector<std::string> servers;
  const uint64_t newest = NewestEpoch(job);
  for (const auto& [server, epoch] : job.checkpoint_epochs) {
    if (epoch == newest) servers.push_back(server);
  }
  return servers;
}

bool Checkpoints::IsStranded(const Job& job) const {
  if (job.checkpoint_epochs.empty()) return false;
  const std::vector<std::string> servers = CheckpointServers(job);
  return !servers.empty() &&
         std::ranges::none_of(servers, [&](const std::string& server) {
           return agents_.IsReachable(server);
         });
}

CheckpointSource Checkpoints::SourceFor(const Job& job,
                                        const std::string& server) const {
  CheckpointSource source;
  if (job.checkpoint_epochs.empty()) return source;
  const std::vector<std::string> servers = CheckpointServers(job);
  if (servers.empty() || !agents_.HasOwnCheckpoints(server) ||
      std::ranges::find(servers, server) != servers.end()) {
    return source;
  }
  source.server = servers.front();
  const Generation acknowledged = Acknowledged(job);
  if (acknowledged > job.forgone) source.at_least = acknowledged;
  for (const std::string& candidate : servers) {
    const Agent* agent = agents_.Find(candidate);
    if (agent == nullptr || !agent->reachable) continue;
    source.server = candidate;
    source.endpoint = agent->stream_endpoint;
    source.public_key = agent->stream_public_key;
    break;
  }
  return source;
}

void Checkpoints::OfferCheckpoint(const Job& job,
                                  const CheckpointSource& source,
                                  const std::string& reader) {
  if (source.endpoint.empty()) return;
  const Agent* agent = agents_.Find(reader);
  if (agent == nullptr) return;
  outbox_.Emit(action::SendToAgent{
      source.server,
      ServeCheckpoint{source.server, outbox_.position(), job.id,
                      job.spec.checkpoint_directory, agent->stream_public_key,
                      job.spec.unix_user}});
}

void Checkpoints::Prefetch(const Job& job) {
  if (job.planned.empty() || !job.AnyLive()) return;
  const std::string& server = cluster_.accelerator(job.planned.front()).server;
  const CheckpointSource source = SourceFor(job, server);
  if (source.endpoint.empty()) return;
  OfferCheckpoint(job, source, server);
  outbox_.Emit(action::SendToAgent{
      server, PrefetchCheckpoint{server, outbox_.position(), job.id,
                                 job.spec.checkpoint_directory, source,
                                 job.spec.unix_user}});
}

bool Checkpoints::ShareCheckpoints(
    const std::vector<AcceleratorId>& places) const {
  return std::all_of(places.begin(), places.end(), [&](AcceleratorId place) {
    const std::string& first = cluster_.accelerator(places.front()).server;
    const std::string& server = cluster_.accelerator(place).server;
    return server == first || !agents_.HasOwnCheckpoints(server);
  });
}

void Checkpoints::ForgoCheckpoints(Job& job) {
  job.forgone = std::max(job.forgone, Acknowledged(job));
  for (const std::string& server : CheckpointServers(job)) {
    job.checkpoint_epochs.erase(server);
  }
  agenda_.SolveSoon();
  agenda_.FillSoon();
}

void Checkpoints::Admit(Time now, const event::CheckpointComing& e) {
  const FetchProgress& progress = e.progress;
  Worker* worker = jobs_.Find(progress.worker);
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

Reason Checkpoints::WhyMoving(const Job& job, int rank) const {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const CheckpointSource source = SourceFor(job, worker.server);
  const auto known = fetching_.find({job.id, rank, worker.incarnation});
  std::string way = StrCat(source.server, " to ", worker.server);
  if (known == fetching_.end()) {
    return reason::Moving{std::move(way)};
  }
  const FetchProgress& progress = known->second;
  if (!progress.waits_for.empty()) {
    StrAppend(&way, " (", progress.waits_for, ")");
  }
  return reason::Moving{std::move(way),
                        static_cast<double>(progress.bytes_done),
                        static_cast<double>(progress.bytes_total)};
}

Reason Checkpoints::WhyStranded(const Job& job) const {
  return reason::Stranded{absl::StrJoin(CheckpointServers(job), " and "),
                          Acknowledged(job).step, job.id};
}

bool Checkpoints::IsTooWideForOneServer(const Job& job) const {
  if (job.scale_factor < 2) return false;
  int most = 0;
  bool own = false;
  for (const auto& [server, accelerators] : cluster_.servers()) {
    own |= agents_.HasOwnCheckpoints(server);
    std::map<int, int> by_type;
    for (const AcceleratorId id : accelerators) {
      if (cluster_.accelerator(id).state != AcceleratorState::kUsable) continue;
      most = std::max(most, ++by_type[cluster_.TypeOf(id)]);
    }
  }
  return own && most < job.scale_factor;
}

}  // namespace gavel::engine
