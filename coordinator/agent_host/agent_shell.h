// A server's agent: drives the AgentMachine with the real clock, ZeroMQ and
// real processes. `gavel agent` runs one, `gavel local` one per server of its
// cluster file.
//
// Run() belongs to one thread. Stop() may be called from any thread, and from a
// signal handler. The loop waits for messages only: launches, processes, their
// output and the agent's files have their own threads (agent_workers.h).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_SHELL_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_SHELL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/agent_log.h"
#include "core/messages.h"
#include "runtime/transport/curve.h"

namespace spdlog {
class logger;
}

namespace gavel {

struct AgentShellOptions {
  std::string server;       // [A-Za-z0-9_-]{1,64}
  std::string coordinator;  // endpoint; beyond loopback only with `keys`
  std::optional<CurveClient> keys;  // its own, and the coordinator's public one
  std::string address = "127.0.0.1";  // where other machines reach this server
  // Logs, who runs, incarnation; created when it is not there, mode 0700.
  std::string state_directory;
  // Lock files of the accelerators; empty: STATE/run. All agents of a machine
  // that share accelerators must share it.
  std::string run_directory;
  std::vector<AcceleratorInfo> accelerators;
  std::string rack;                // of the server; empty: not known
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  // Variables of the agent that workers keep: "NAME", or "PREFIX*".
  std::vector<std::string> keep_environment;
  // Checkpoints lie on this server alone (in the state directory), and move by
  // streams between the agents. Else all servers see the same directories.
  bool own_checkpoints = false;
  // At the agent's end its jobs have this long to leave, each with a
  // checkpoint. The remaining workers get SIGTERM, and SIGKILL `stop_grace_s`
  // later.
  double drain_timeout_s = 0;
  double stop_grace_s = 10;
  // A launch that does not come to exec within this is given up.
  double exec_limit_s = 10;
  LogLimits log_limits;                 // of workers' output
  std::shared_ptr<spdlog::logger> log;  // null: none
};

class AgentShell {
 public:
  // Takes the lock of this name in the state directory. INVALID_ARGUMENT: an
  // option. ALREADY_EXISTS: another agent has the name. PERMISSION_DENIED: the
  // directory is not ours. Each names the remedy.
  static absl::StatusOr<std::unique_ptr<AgentShell>> Create(
      AgentShellOptions options);
  ~AgentShell();

  // Ends the processes that an earlier agent left, then serves until Stop()
  // (OK) or until the coordinator rejects the agent (ABORTED with its reason).
  // No worker runs when it returns.
  absl::Status Run();

  // A second time: without waiting for jobs to leave.
  void Stop();

 private:
  struct Impl;
  explicit AgentShell(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_SHELL_H_
