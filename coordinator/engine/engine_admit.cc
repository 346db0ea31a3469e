// What reaches the engine from outside: checked here, then journaled and
// applied (engine_apply.cc), or answered at once.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/engine/worker_limits.h"
#include "core/launch_errors.h"
#include "core/rules.h"
#include "core/text.h"

namespace gavel {
namespace {

// Denied workers ask again after this, though a notice comes before.
constexpr double kRetryAfter_s = 2;
// The other ranks of a gang, while rank 0 opens its store; the same.
constexpr double kGangRetry_s = 0.5;
// A lease shorter than this is not begun; nor one of a gang that is shorter
// than this part of a whole one, for its ranks stop some time ahead of the end,
// and would have come together for nothing.
constexpr double kLeaseMin_s = 0.05;
constexpr double kGangLeaseMin = 0.1;

std::string Capacities(const Cluster& cluster) {
  std::vector<std::string> parts;
  const std::vector<int>& capacity = cluster.Capacity();
  for (size_t type = 0; type < capacity.size(); ++type) {
    if (!cluster.HasType(type)) continue;
    parts.push_back(StrCat(capacity[type], " ", cluster.types()[type]));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

// What the job file leaves open, by the table, and by the full names of types:
// journaled with the job, so that a replay needs no table.
void Engine::FillThroughputs(JobSpec& spec) const {
  NameInFull(cluster_.types(), &spec.throughputs);
  const ThroughputTable* table = options_.throughputs.get();
  if (table == nullptr) return;
  const std::optional<ThroughputTable::Row> row = table->FindRow(
      spec.app.empty() ? spec.name : spec.app, spec.scale_factor);
  if (!row.has_value()) return;
  for (const std::string& type : cluster_.types()) {
    const std::optional<size_t> known =
        FindColumn(*table, type, cluster_.types());
    if (!known.has_value()) continue;
    if (const std::optional<double> alone = table->Alone(*row, *known)) {
      spec.throughputs.try_emplace(type, *alone);
    }
    if (!options_.placement_sensitive) continue;
    if (const std::optional<double> spread =
            table->Alone(*row, *known, /*consolidated=*/false)) {
      spec.throughputs.try_emplace(StrCat(type, "_unconsolidated"), *spread);
    }
  }
}

void Engine::Admit(Time now, event::JobSubmitted e) {
  const auto refuse = [&](std::string why) {
    // It may tell of a job whose row is not yet on disk.
    Emit(action::Reply{e.reply_to, JobId(), std::move(why)});
    Flush();
  };
  if (const auto taken = names_.find(NameOf(e.spec)); taken != names_.end()) {
    return refuse(StrCat(
        "job \"", e.spec.name, "\": the name is taken by job ",
        taken->second.value(),
        ", which has not ended; choose another name or cancel that one"));
  }
  const std::vector<int>& capacity = cluster_.Capacity();
  const int largest = capacity.empty()
                          ? 0
                          : *std::max_element(capacity.begin(), capacity.end());
  // Before any server has joined nothing is known, so the job may wait.
  const int needed = e.spec.LeastWorkers();
  if (largest > 0 && needed > largest) {
    return refuse(StrCat("job \"", e.spec.name, "\": scale factor ", needed,
                         " fits on no accelerator type of the cluster (",
                         Capacities(cluster_),
                         "); lower it or add accelerators"));
  }
  FillThroughputs(e.spec);
  Record(now, std::move(e));
}

void Engine::Admit(Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  const auto it = agents_.find(hello.server);
  const auto refuse = [&](std::string why) {
    EmitNow(action::SendToAgent{hello.server, AgentRejected{hello.server,
                                                            {term_, persisted_},
                                                            std::move(why),
                                                            hello.incarnation,
                                                            hello.state_id}});
  };
  if (it != agents_.end() && it->second.state_id != hello.state_id) {
    // Another state directory: which of the two is newer their incarnations do
    // not say, and what the other one runs this one can't know.
    if (it->second.reachable) {
      return refuse(StrCat(
          "another agent of server \"", hello.server,
          "\", with another state directory, is at work; stop that one and "
          "wait ",
          options_.agent_timeout_s,
          " s, or give this one another name with --server"));
    }
  } else if (it != agents_.end() &&
             hello.incarnation < it->second.incarnation &&
             Rules::Hold(Rule::kOlderAgentIsRejected)) {
    return refuse(StrCat("a newer agent of server \"", hello.server,
                         "\" has joined; stop this one, or give the "
                         "servers different names"));
  }
  if (absl::Status joined =
          Cluster::CheckUuids(hello.server, hello.accelerators);
      !joined.ok()) {
    return refuse(std::string(joined.message()));
  }
  if (!FitsCheckpoints(hello)) {
    return refuse(
        "the agents of a cluster share their checkpoint directories, or none "
        "does; start all with --own-checkpoints, or none");
  }
  Record(now, e);
}

void Engine::Admit(Time now, const event::AgentHeard& e) {
  const AgentHeartbeat& beat = e.heartbeat;
  const auto it = agents_.find(beat.server);
  // The welcome carries the present term and names nobody: an agent that does
  // not know that term yet, or was given up, says hello with all that runs.
  if (it == agents_.end() || it->second.incarnation != beat.incarnation ||
      !it->second.reachable || beat.highest_seen.term < term_) {
    return EmitNow(action::SendToAgent{
        beat.server,
        AgentWelcome{
            beat.server, {term_, persisted_}, options_.heartbeat_interval_s}});
  }
  it->second.heard_at = now;
}

void Engine::Reject(const WorkerKey& worker, std::string reason) {
  EmitNow(action::SendToWorker{
      worker, WorkerRejected{worker, {term_, persisted_}, std::move(reason)}});
}

void Engine::Admit(Time now, const event::WorkerJoined& e) {
  const WorkerKey& key = e.hello.worker;
  Worker* worker = Find(key);
  if (worker == nullptr || worker->process == ProcessState::kNone ||
      worker->process == ProcessState::kDone) {
    return Reject(key, StrCat("job ", key.job.value(), " rank ", key.rank,
                              " does not run as incarnation ", key.incarnation,
                              " any more"));
  }
  const bool news = e.hello.ready || !worker->spoke;
  if (worker->process == ProcessState::kLaunching && news) Record(now, e);
  // Also the answer to a repeated hello.
  Emit(action::SendToWorker{
      key, LeaseNotice{key, position(), Find(key.job)->epoch}});
  Flush();
}

void Engine::Admit(Time now, event::LeaseEnded e) {
  Worker* worker = Find(e.worker);
  const bool is_held = worker != nullptr && worker->held_epoch == e.epoch;
  if (worker == nullptr || e.epoch == 0 ||
      (!is_held && Rules::Hold(Rule::kReleaseIsOfHeldEpoch))) {
    return;
  }
  const AcceleratorId held = worker->held;
  const JobId job = e.worker.job;
  const bool failed = e.cause == ReleaseCause::kDeviceFailed;
  // The speeds of reports that were not journaled, which decisions go by.
  worker->unjournaled.MoveInto(e.progress);
  Record(now, std::move(e));
  if (failed) AdmitFailedDevice(now, job, held);
}

void Engine::Admit(Time now, event::StepsReported e) {
  Worker* worker = Find(e.worker);
  if (worker == nullptr || worker->held_epoch != e.epoch || e.epoch == 0) {
    return;
  }
  if (now - worker->reported_at < options_.report_interval_s) {
    worker->unjournaled.Add(e.progress);
    return NoteSteps(now, *worker, e.progress);
  }
  worker->reported_at = now;
  worker->unjournaled.MoveInto(e.progress);
  Record(now, std::move(e));
}

void Engine::Admit(Time now, const event::WorkerGone& e) {
  const WorkerKey& key = e.exit.worker;
  const Worker* worker = Find(key);
  const bool current = worker != nullptr && worker->server == e.exit.server &&
                       (worker->process == ProcessState::kLaunching ||
                        worker->process == ProcessState::kJoined);
  bool quarantined = false;
  for (const auto& [accelerator, holder] : quarantined_) {
    quarantined |= holder == key &&
                   cluster_.accelerator(accelerator).server == e.exit.server;
  }
  if (const auto stranger = strangers_.find(key);
      stranger != strangers_.end() && stranger->second == e.exit.server) {
    strangers_.erase(stranger);
  }
  // Its agent does not know it, which says nothing yet: asked again later.
  const bool holds =
      current ? worker->held_epoch != 0 && worker->unswept : quarantined;
  if (holds && e.exit.no_failure && !e.exit.launch_error.empty() &&
      now < SweptAt(e.exit.server)) {
    return;
  }
  if (current || quarantined) {
    event::WorkerGone gone = e;
    gone.hung_s = current ? worker->hung_s : 0;
    Record(now, std::move(gone));
  }
  // Only once it is on disk: the agent repeats until then.
  Emit(
      action::SendToAgent{e.exit.server, ExitAcknowledged{e.exit.server, key}});
  Flush();
}

void Engine::Admit(Time now, const event::WorkerBusy& e) {
  Worker* worker = Find(e.message.worker);
  if (worker != nullptr) NoteBytes(now, e.message, *worker);
}

void Engine::Admit(Time now, const event::WorkerSaidFinished& e) {
  // The lease is over; the exit code that counts comes from the agent.
  const bool out_of_memory =
      e.message.exit_code != 0 && TellsOutOfMemory(e.message.detail);
  Admit(now, event::LeaseEnded{e.message.worker, e.message.epoch,
                               WithoutSpeed(e.message.progress), true,
                               out_of_memory ? ReleaseCause::kOutOfMemory
                                             : ReleaseCause::kPaused});
}

void Engine::Admit(Time now, const event::LeaseRequested& e) {
  const LeaseRequest& request = e.request;
  const WorkerKey& key = request.worker;
  Job* job = Find(key.job);
  Worker* worker = Find(key);
  if (worker == nullptr || worker->process == ProcessState::kNone ||
      worker->process == ProcessState::kDone) {
    return Reject(key, "another incarnation has taken its place");
  }
  // Its hello comes first (and is repeated until answered), and an old request
  // must not be taken for a new one.
  if (worker->process == ProcessState::kLaunching) return;
  if (request.nonce <= worker->last_nonce) return;
  worker->last_nonce = request.nonce;
  worker->asked_at = now;
  // Asked before its loop ended, and late: it only has to exit.
  if (worker->finished) return;
  AnswerRequest(now, *job, *worker, request);
}

void Engine::AnswerRequest(Time now, Job& job, Worker& worker,
                           const LeaseRequest& request) {
  const WorkerKey& key = request.worker;
  // The release itself was lost on the way; this says the same.
  if (worker.held_epoch != 0 && request.released_epoch >= worker.held_epoch &&
      Rules::Hold(Rule::kReleaseIsRepaired)) {
    Admit(now, event::LeaseEnded{key, worker.held_epoch,
                                 WithoutSpeed(worker.progress), false});
  }
  if (worker.leaving) {
    const PauseTier tier = job.active() ? PauseTier::kEvict : PauseTier::kStop;
    const uint64_t epoch =
        worker.held_epoch != 0 ? worker.held_epoch : job.epoch;
    Emit(action::SendToWorker{key, PauseRequest{key, position(), epoch, tier}});
    return Flush();
  }
  if (worker.held_epoch != 0) {
    if ((worker.pause_sent_at != kNever || MustGo(job, key.rank)) &&
        Rules::Hold(Rule::kPausingIsNotRenewed)) {
      Pause(now, job, key.rank, worker.pause_tier);
      return Flush();
    }
    // It is about to be killed; should nobody reach it, its lease ends.
    if (worker.hung_s > 0) return;
    if (key.rank == 0) NoteGang(job, worker, request);
    // Granted, but it never heard of it, and the address is not known (any
    // more): nothing to start with.
    if (!request.holding && WaitsForGang(job, key.rank, worker.held_epoch)) {
      return Deny(key, job, request.nonce, kGangRetry_s);
    }
    // Its first grant may still wait for the disk; then so does this one.
    return Grant(now, job, key.rank, request.nonce,
                 /*renewal=*/worker.lease_seq <= persisted_);
  }
  // It was left behind when its gang became smaller.
  if (CanStart(job) && key.rank >= job.world_size) {
    return Reject(key, StrCat("job ", job.id.value(), " runs with ",
                              job.world_size, " workers now"));
  }
  const double whole_s = std::min(lease_duration_s_, round_duration_s_);
  const double least_s = job.is_gang()
                             ? std::max(kLeaseMin_s, kGangLeaseMin * whole_s)
                             : kLeaseMin_s;
  if (CanStart(job) && LeaseHorizon(job) - now >= least_s) {
    if (WaitsForGang(job, key.rank, job.epoch)) {
      return Deny(key, job, request.nonce, kGangRetry_s);
    }
    if (now < lost_leases_until_) {
      return Deny(key, job, request.nonce, lost_leases_until_ - now);
    }
    if (!TakeLeaseStart(now, worker)) {
      return Deny(key, job, request.nonce, kRetryAfter_s);
    }
    Record(now,
           event::LeaseStarted{key, job.epoch,
                               job.assigned[static_cast<size_t>(key.rank)]});
    return Grant(now, job, key.rank, request.nonce,
                 /*renewal=*/!Rules::Hold(Rule::kGrantsAfterPersist));
  }
  Deny(key, job, request.nonce, kRetryAfter_s);
}

// It names the epoch, so it may not overtake the event that raised it.
void Engine::Deny(const WorkerKey& key, const Job& job, uint64_t nonce,
                  double retry_after_s) {
  Emit(action::SendToWorker{
      key, LeaseDenied{key, position(), job.epoch, nonce, retry_after_s}});
  Flush();
}

// Renewals never wait behind an fsync; the first grant of an epoch always does.
void Engine::Grant(Time now, Job& job, int rank, uint64_t nonce, bool renewal) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  const WorkerKey key{job.id, rank, worker.incarnation};
  LeaseGrant grant;
  grant.worker = key;
  grant.position = renewal ? JournalPosition{term_, persisted_} : position();
  grant.epoch = worker.held_epoch;
  grant.nonce = nonce;
  grant.duration_s = std::max(
      0.0,
      std::min(options_.lease_duration_s, Rules::Hold(Rule::kLeaseEndsWithRound)
                                              ? LeaseHorizon(job) - now
                                              : kNever));
  AddPart(job, rank, grant);
  grant.world_size = worker.world_size;
  if (rank != 0 && job.gang_epoch == worker.held_epoch) {
    grant.gang_address = job.gang_address;
  }
  // A renewal may end before an earlier one, where a plan was taken back, and
  // be lost: then the worker has the earlier one.
  const Time expires = now + grant.duration_s * (1 + options_.drift);
  worker.lease_expires = Rules::Hold(Rule::kLongestGrantCounts)
                             ? std::max(worker.lease_expires, expires)
                             : expires;
  Due(worker.lease_expires);
  if (renewal) {
    EmitNow(action::SendToWorker{key, std::move(grant)});
  } else {
    Emit(action::SendToWorker{key, std::move(grant)});
  }
}

// All or nothing: no rank of a gang starts before all have joined and every
// accelerator is free of its last holder.
bool Engine::CanStart(const Job& job) const {
  if (!job.active() || job.assigned.empty()) return false;
  if (!job.AllJoined() && Rules::Hold(Rule::kGangStartsTogether)) return false;
  for (size_t rank = job.assigned.size(); rank < job.workers.size(); ++rank) {
    if (job.workers[rank].held_epoch != 0) return false;  // it leaves
  }
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const Accelerator& next = cluster_.accelerator(job.assigned[rank]);
    if (worker.leaving || worker.server != next.server) return false;
    if (!next.usable()) return false;
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) return false;
    if (HeldByOther(next.id, job) != nullptr &&
        Rules::Hold(Rule::kAcceleratorIsFree)) {
      return false;
    }
    if (LeavingMemory(next.id, job) != nullptr) return false;
  }
  return true;
}

}  // namespace gavel
