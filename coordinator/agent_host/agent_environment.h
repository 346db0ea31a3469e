// The environment of a worker's process: a few variables of the agent, those of
// the job, and those of the protocol (docs/protocol.md). Pure; called at each
// launch. Stateless, thread-safe.
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
  // Of the agent's variables: "NAME", or "PREFIX*".
  std::vector<std::string> keep_environment = {};
  std::string address = "127.0.0.1";  // where other machines reach this server
  std::optional<UnixAccount> account =
      {};                            // that it runs as; none: the agent's
  std::string end_file = "";         // its own, for its last word
  std::string key_file = "";         // its own; empty: connections have no keys
  std::string coordinator_key = "";  // public
  std::string cluster = "";  // its id; empty: the coordinator tells none
};

// "NAME=value", sorted by name. `own`: the agent's environment. A worker sees
// all declared GPUs of the server, since it moves between them without a
// restart, and no others (one whose accelerator is alone_visible: that one);
// and what `keep_environment` names. The job's [environment] may replace all
// variables but the protocol's GAVEL_*, torchrun's, and those that hide others.
std::vector<std::string> WorkerEnvironment(
    const LaunchWorker& launch, const WorkerPlace& place,
    const std::map<std::string, std::string>& own);

// Of this process.
std::map<std::string, std::string> OwnEnvironment();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_
