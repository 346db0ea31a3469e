// The user's terminal, attached to that of an interactive job. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_SHELL_SESSION_H_
#define GAVEL_COORDINATOR_CLI_SHELL_SESSION_H_

#include <atomic>

#include "absl/status/statusor.h"
#include "coordinator/cli/client.h"
#include "core/ids.h"

namespace gavel {

enum class SessionEnd {
  kEnded,    // the process is gone, and all of its output was shown
  kDetached  // `stop` was set
};

// Connects standard input and output with the terminal of the job's process
// until that ends. Keys go to the process as they are, Ctrl-C too, when
// standard input is a terminal; else its end is sent as Ctrl-D. While the
// coordinator or the agent does not answer it tries on.
// FAILED_PRECONDITION: the terminal is refused, or another client has attached.
absl::StatusOr<SessionEnd> AttachTerminal(Client& client, JobId job,
                                          const std::atomic<bool>& stop);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_SHELL_SESSION_H_
