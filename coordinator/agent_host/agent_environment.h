// The environment of a worker's process: little of the agent's own, the job's,
// then what the protocol wants it to know (docs/protocol.md). Pure; an agent
// calls it at each launch. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/agent_host/unix_account.h"
#include "core/messages.h"

namespace gavel {

struct WorkerPlace {
  std::string coordinator;    // endpoint that workers connect to
  std::string run_directory;  // of the accelerators' lock files
  bool has_gpus = false;      // among the server's declared accelerators
  std::string address = "127.0.0.1";  // where other machines reach this server
  std::optional<UnixAccount> account =
      {};                            // that it runs as; none: the agent's
  std::string key_file = "";         // its own; empty: connections have no keys
  std::string coordinator_key = "";  // public
};

// "NAME=value", sorted by name. `own`: the agent's environment. GPUs that the
// server did not declare are hidden; of the others a worker sees all, since it
// moves between them without starting again. The job's [environment] may
// replace anything but GAVEL_* of the protocol and torchrun's variables.
std::vector<std::string> WorkerEnvironment(
    const LaunchWorker& launch, const WorkerPlace& place,
    const std::map<std::string, std::string>& own);

// Of this process.
std::map<std::string, std::string> OwnEnvironment();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_
