// Starts one process: exec of argv, never a shell. An agent calls it for each
// worker. Stateless; any thread may call it, but the process dies with the
// thread that did (PR_SET_PDEATHSIG), so that no agent leaves orphans.
#ifndef GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_H_
#define GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/server/unix_account.h"

namespace gavel {

struct ProcessSpec {
  // argv[0] with a slash is a path, from `working_directory` if it is relative;
  // without one it is looked up in the PATH of `environment`.
  std::vector<std::string> argv;
  std::string working_directory;         // empty: the agent's own
  std::vector<std::string> environment;  // all of it, as NAME=value
  // One of these entries that no other process has: what has inherited it was
  // started by this process. Empty: none.
  std::string mark;
  std::string output_path;  // gets stdout and stderr, at its end; created 0600
  // Changed to before anything of the job is touched: its directory, program
  // and files are reached as that user. Nothing: stays this process's user.
  std::optional<UnixAccount> account;
};

// The process leads a process group of its own, has default signal handlers,
// umask 022, no core dumps (its key would be in them), /dev/null as stdin and
// no other descriptor of ours. Returns once exec has
// happened, with the pid.
//
// Errors are for the user, with the remedy: NOT_FOUND (no such program or
// directory), PERMISSION_DENIED (not executable), FAILED_PRECONDITION (not a
// program for this machine), RESOURCE_EXHAUSTED (no process or memory left),
// DEADLINE_EXCEEDED (exec hangs), INVALID_ARGUMENT (argv is empty).
absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec);

// Where exec looks for argv[0], in this order.
std::vector<std::string> ProgramCandidates(const ProcessSpec& spec);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_H_
