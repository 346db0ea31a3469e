#include "coordinator/agent_host/agent_workers.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {

AgentWorkers::AgentWorkers(AgentWorkersOptions options)
    : options_(std::move(options)),
      own_environment_(OwnEnvironment()),
      outputs_({options_.logs_directory, options_.log_limits, options_.notify,
                options_.log}),
      children_(options_.notify, options_.exec_limit_s) {}

AgentWorkers::~AgentWorkers() { End(SIGKILL); }

void AgentWorkers::Launch(const LaunchWorker& launch,
                          const std::string& cluster) {
  live_.insert(launch.worker);
  tasks_.Post([this, launch, cluster] { Prepare(launch, cluster); });
}

void AgentWorkers::Signal(const WorkerKey& worker, int signal) {
  children_.Signal(worker, signal);
}

void AgentWorkers::SignalAll(int signal) { children_.SignalAll(signal); }

void AgentWorkers::End(int signal) {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  children_.SignalAll(signal);
}

void AgentWorkers::Record(std::vector<RunningWorker> running) {
  tasks_.Post([this, running = std::move(running)] {
    const absl::Status written = options_.record->Write(running);
    if (written.ok()) return;
    options_.log->error(
        "agent {}: {}: should this agent be killed, the next one does not know "
        "what to sweep; make room",
        options_.server, ToStd(written.message()));
  });
}

void AgentWorkers::Prepare(const LaunchWorker& launch,
                           const std::string& cluster) {
  const absl::Status prepared = TryPrepare(launch, cluster);
  if (prepared.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    not_prepared_.emplace_back(
        ChildNotStarted{launch.worker, std::string(prepared.message())});
  }
  options_.notify();
}

absl::Status AgentWorkers::TryPrepare(const LaunchWorker& launch,
                                      const std::string& cluster) {
  // It becomes a file name.
  if (!IsValidName(launch.job_name)) {
    return absl::InvalidArgumentError(
        StrCat("\"", launch.job_name, "\" is no job name"));
  }
  if (options_.keys != nullptr && launch.unix_user.empty()) {
    return absl::PermissionDeniedError(
        "the job has no owner; submit it again, with a key");
  }
  WorkerPlace place = options_.place;
  place.cluster = cluster;
  GAVEL_ASSIGN_OR_RETURN(place.account, AccountOfJob(launch.unix_user));
  LaunchWorker here = launch;
  if (options_.checkpoints != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(here.checkpoint_directory,
                           options_.checkpoints->DirectoryFor(
                               launch.checkpoint_directory, place.account));
  }
  if (options_.keys != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(place.key_file,
                           options_.keys->Mint(launch.worker, place.account));
  }
  place.end_file = EndFileOf(launch.worker);
  GAVEL_RETURN_IF_ERROR(MakeEndFile(place.end_file, place.account));
  ProcessSpec spec;
  spec.account = place.account;
  spec.argv = launch.argv;
  spec.working_directory = launch.working_directory;
  spec.env_file = launch.env_file;
  spec.environment = WorkerEnvironment(here, place, own_environment_);
  spec.mark = options_.record->MarkOf(launch.worker);
  spec.environment.push_back(spec.mark);
  GAVEL_ASSIGN_OR_RETURN(
      Descriptor output,
      outputs_.Open({cluster, launch.worker, launch.job_name, launch.unix_user},
                    place.account, launch.terminal));
  spec.output = output.get();
  spec.terminal = launch.terminal;
  const std::lock_guard lock(mutex_);
  if (ending_) return absl::UnavailableError("the agent is ending");
  children_.Start(launch.worker, std::move(spec), std::move(output));
  return absl::OkStatus();
}

void AgentWorkers::ReadLog(const std::string& cluster,
                           const LogRequest& request) {
  const bool runs = std::ranges::any_of(live_, [&](const WorkerKey& worker) {
    return worker.worker() == request.worker;
  });
  outputs_.Read(cluster, request, runs);
}

std::vector<WorkerEvent> AgentWorkers::TakeEvents(Time now) {
  std::vector<WorkerEvent> events;
  std::vector<ChildEvent> not_prepared;
  {
    const std::lock_guard lock(mutex_);
    not_prepared = std::exchange(not_prepared_, {});
  }
  for (ChildEvent& event : not_prepared) Take(now, std::move(event), &events);
  for (ChildEvent& event : children_.TakeEvents()) {
    Take(now, std::move(event), &events);
  }
  for (OutputEvent& event : outputs_.TakeEvents()) {
    Take(std::move(event), &events);
  }
  for (auto it = draining_.begin(); it != draining_.end();) {
    const auto next = std::next(it);
    if (now >= it->second.ends_at) FinishDrained(it, {}, &events);
    it = next;
  }
  return events;
}

void AgentWorkers::Take(Time now, ChildEvent event,
                        std::vector<WorkerEvent>* events) {
  if (const auto* started = std::get_if<ChildStarted>(&event)) {
    events->emplace_back(*started);
    return;
  }
  if (const auto* exit = std::get_if<ChildExit>(&event)) {
    draining_[exit->worker] = {*exit, now + kOutputWait_s};
    ForgetKey(exit->worker);
    outputs_.Finish(exit->worker, EndFileOf(exit->worker));
    return;
  }
  auto& not_started = std::get<ChildNotStarted>(event);
  ForgetKey(not_started.worker);
  outputs_.Finish(not_started.worker, EndFileOf(not_started.worker));
  live_.erase(not_started.worker);
  events->emplace_back(std::move(not_started));
}

void AgentWorkers::Take(OutputEvent event, std::vector<WorkerEvent>* events) {
  if (auto* reply = std::get_if<LogReply>(&event)) {
    events->emplace_back(std::move(*reply));
    return;
  }
  if (auto* answer = std::get_if<TerminalReply>(&event)) {
    events->emplace_back(std::move(*answer));
    return;
  }
  if (auto* used = std::get_if<TerminalWasUsed>(&event)) {
    events->emplace_back(*used);
    return;
  }
  auto& ended = std::get<OutputEnded>(event);
  const auto found = draining_.find(ended.worker);
  if (found == draining_.end()) return;
  FinishDrained(found, std::move(ended), events);
}

void AgentWorkers::FinishDrained(std::map<WorkerKey, Draining>::iterator it,
                                 OutputEnded output,
                                 std::vector<WorkerEvent>* events) {
  live_.erase(it->first);
  events->emplace_back(WorkerEnded{std::move(it->second.exit),
                                   std::move(output.error_line),
                                   output.finished_code});
  draining_.erase(it);
}

std::string AgentWorkers::EndFileOf(const WorkerKey& worker) const {
  return StrCat(options_.ends_directory, "/", worker.job.value(), "-",
                worker.rank, "-", worker.incarnation);
}

void AgentWorkers::ForgetKey(const WorkerKey& worker) {
  if (options_.keys == nullptr) return;
  tasks_.Post([this, worker] { options_.keys->Forget(worker); });
}

Time AgentWorkers::NextDeadline() const {
  Time next = kNever;
  for (const auto& [worker, draining] : draining_) {
    next = std::min(next, draining.ends_at);
  }
  return next;
}

}  // namespace gavel
