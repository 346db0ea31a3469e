// Commands that watch jobs: what a job prints, how it ended, and the exit code
// that follows from its end. A coordinator that is being restarted is waited
// for. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_JOB_COMMANDS_H_
#define GAVEL_COORDINATOR_CLI_JOB_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/client.h"
#include "coordinator/server/rows.h"
#include "coordinator/workload/json_fields.h"
#include "core/messages.h"

namespace gavel {

struct OutputOptions {
  int rank = 0;
  std::string server;  // what it wrote there only; empty: wherever it ran
  double since_s = 0;  // seconds since 1970; 0: all
  bool json = false;   // lines of JSON
  bool raw = false;    // to a terminal, too
};

// The job as it is now. FAILED_PRECONDITION: there is no such job.
absl::StatusOr<QueueRow> JobOf(Client& client, JobId job);

// Prints what the job has written so far, on all servers on which it ran, in
// the order of its processes. Notes on stderr tell what can't be shown.
absl::Status PrintOutput(Client& client, JobId job,
                         const OutputOptions& options);

struct Followed {
  QueueRow job;       // as it was last
  std::string error;  // why the end of its output is not shown; or empty
};
// Prints what the job writes until it has ended, or is held. `look` is called
// at least once in 0.3 s, with the job as it is then; false: stop now.
absl::StatusOr<Followed> FollowOutput(
    Client& client, JobId job, const OutputOptions& options,
    const std::function<bool(const QueueRow&)>& look = nullptr);

// Returns once each of the jobs has ended, or is held: the exit code of the
// first that has not finished. Prints how they ended, as JSON if so asked.
absl::StatusOr<int> WaitForAll(Client& client, const std::vector<JobId>& jobs,
                               bool json);

// The exit code of a command that waited for the job: 0 it has finished, or the
// code with which an interactive job has; the code of its last failure, 128 and
// the signal that ended it, or 1 where it never ran; kExitEvicted where
// somebody or a limit ended it.
int ExitCodeOfJob(const QueueRow& job);
// "Job 3 (lm) finished", or why it did not.
std::string OutcomeText(const QueueRow& job);
Json OutcomeJson(const QueueRow& job);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_JOB_COMMANDS_H_
