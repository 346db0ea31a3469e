// Starts one process: exec of argv, never a shell. Whatever a job names (its
// directory, its program) is touched by the new process alone, which may hang
// there. Stateless; any thread may call it, but the process dies with the
// thread that did (PR_SET_PDEATHSIG), so that no agent leaves orphans.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/unix_account.h"
#include "runtime/files/descriptor.h"

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
  // Gets stdout and stderr, at its end; created 0600. Not with `output`.
  std::string output_path;
  int output = -1;  // gets them instead; borrowed until the fork
  // Changed to before anything of the job is touched: its directory, program
  // and files are reached as that user. Nothing: stays this process's user.
  std::optional<UnixAccount> account;
};

// A new process on its way to exec.
struct ForkedProcess {
  pid_t pid = 0;
  // Readable once it has come to exec, has failed to, or is gone.
  Descriptor news;
};

// Does not wait for exec. The process leads a session and group of its own, has
// default signal handlers, umask 022, no core dumps (its key would be in them),
// /dev/null as stdin, and no other descriptor of ours, also before exec.
//
// Errors: INVALID_ARGUMENT (argv is empty), RESOURCE_EXHAUSTED (no process,
// memory or descriptor left), and those of opening `output_path`.
absl::StatusOr<ForkedProcess> ForkProcess(const ProcessSpec& spec);

// Nothing: it is still on its way. OK: exec has happened, or it was killed
// before, which waiting for it tells. Else it ends without having run, with an
// error for the user that names the remedy: NOT_FOUND (no such program or
// directory), PERMISSION_DENIED (not executable), FAILED_PRECONDITION (not a
// program for this machine) and others. Does not block.
//
// A process that was sent SIGKILL and is still on its way never runs a line of
// the program, however long a file system keeps it: the signal comes first.
std::optional<absl::Status> ExecResult(const ProcessSpec& spec,
                                       const ForkedProcess& process);

// Both, for commands that have nothing else to do: waits for exec, 10 s at
// most (DEADLINE_EXCEEDED), and for the end of what did not come to it.
absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec);

// Where exec looks for argv[0], in this order.
std::vector<std::string> ProgramCandidates(const ProcessSpec& spec);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_
