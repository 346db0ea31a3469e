// A coordinator and the agents of all servers of a cluster file in this
// process, each on a thread of its own. `gavel local` owns one. Not thread-safe
// but for what is said so.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_CLUSTER_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_CLUSTER_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/agent_shell.h"
#include "coordinator/server/coordinator_server.h"

namespace gavel {

struct LocalClusterOptions {
  CoordinatorServerOptions coordinator;
  std::vector<AgentShellOptions> agents;  // `coordinator` is filled in
};

class LocalCluster {
 public:
  // `on_failure` is called on one of the threads, once, when a part ends by
  // itself. Errors as those of CoordinatorServer and AgentShell.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      LocalClusterOptions options, std::function<void()> on_failure);
  ~LocalCluster() { Stop().IgnoreError(); }

  // Ends the agents, and with them all workers, then the coordinator. The first
  // error that a part ended with.
  absl::Status Stop();

  // Why a part ended by itself; OK: none has. Thread-safe.
  absl::Status failure() const;

  const std::string& endpoint() const { return server_->endpoint(); }

 private:
  explicit LocalCluster(std::function<void()> on_failure)
      : on_failure_(std::move(on_failure)) {}
  void Ended(const absl::Status& status);

  const std::function<void()> on_failure_;
  mutable std::mutex mutex_;  // guards the next two
  bool stopping_ = false;
  absl::Status failure_;
  std::unique_ptr<CoordinatorServer> server_;
  std::vector<std::unique_ptr<AgentShell>> agents_;
  std::vector<std::thread> agent_threads_;
  std::thread server_thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_CLUSTER_H_
