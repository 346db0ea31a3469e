#include "coordinator/cli/daemon/local_cluster.h"

#include <utility>

#include "core/status.h"

namespace gavel {

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    LocalClusterOptions options, std::function<void()> on_failure) {
  std::unique_ptr<LocalCluster> cluster(
      new LocalCluster(std::move(on_failure)));
  GAVEL_ASSIGN_OR_RETURN(cluster->server_, CoordinatorServer::Create(
                                               std::move(options.coordinator)));
  for (AgentShellOptions& agent : options.agents) {
    agent.coordinator = cluster->endpoint();
    GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<AgentShell> shell,
                           AgentShell::Create(std::move(agent)));
    cluster->agents_.push_back(std::move(shell));
  }
  LocalCluster* const self = cluster.get();
  self->server_thread_ =
      std::thread([self] { self->Ended(self->server_->Run()); });
  for (const std::unique_ptr<AgentShell>& agent : self->agents_) {
    self->agent_threads_.emplace_back(
        [self, shell = agent.get()] { self->Ended(shell->Run()); });
  }
  return cluster;
}

void LocalCluster::Ended(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    const bool first = failure_.ok();
    if (first && !status.ok()) failure_ = status;
    if (first && status.ok() && !stopping_) {
      failure_ = absl::CancelledError("a client asked the coordinator to stop");
    }
    if (stopping_) return;
  }
  on_failure_();
}

absl::Status LocalCluster::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const std::unique_ptr<AgentShell>& agent : agents_) agent->Stop();
  for (std::thread& thread : agent_threads_) thread.join();
  agent_threads_.clear();
  if (server_ != nullptr) server_->Stop();
  if (server_thread_.joinable()) server_thread_.join();
  return failure();
}

absl::Status LocalCluster::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace gavel
