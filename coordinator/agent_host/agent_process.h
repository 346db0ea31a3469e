// Starts one process: exec of argv, never a shell. Only the new process touches
// the job's directory and program, whose file system may hang. Stateless; the
// process dies with the thread that started it (PR_SET_PDEATHSIG), so that no
// agent leaves orphans.
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
#include "runtime/descriptor.h"

namespace gavel {

struct ProcessSpec {
  // argv[0] with a slash is a path, from `working_directory` if it is relative;
  // without one it is looked up in the PATH of `environment`.
  std::vector<std::string> argv;
  std::string working_directory;         // empty: the agent's own
  std::vector<std::string> environment;  // all of it, as NAME=value
  // An entry of `environment` that is unique to this process: a process that
  // has it too was started by this one. Empty: none.
  std::string mark;
  // stdout and stderr are appended to it; created 0600. Not with `output`.
  std::string output_path;
  int output = -1;  // gets them instead; borrowed until the fork
  // The user to change to before anything of the job is touched; nothing: this
  // process's user.
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

// Does not block. Nothing: exec is still to come. OK: exec has happened, or the
// process was killed before it (waitpid tells which). Else the process ends
// without running the program, with an error for the user and its remedy:
// NOT_FOUND (no such program or directory), PERMISSION_DENIED (not executable),
// FAILED_PRECONDITION (not a program for this machine) and others.
//
// After SIGKILL a process that has not reached exec never runs the program.
std::optional<absl::Status> ExecResult(const ProcessSpec& spec,
                                       const ForkedProcess& process);

// ForkProcess and ExecResult in one, for commands that may block: waits at most
// 10 s for exec (DEADLINE_EXCEEDED), and for the end of a process that failed.
absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec);

// Where exec looks for argv[0], in this order.
std::vector<std::string> ProgramCandidates(const ProcessSpec& spec);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_
