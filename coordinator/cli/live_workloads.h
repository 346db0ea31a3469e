// The training programs that commands run live to measure them: those of a
// file or the examples of this project, how they are started and stopped, and
// when each of their steps ran.
#ifndef GAVEL_COORDINATOR_CLI_LIVE_WORKLOADS_H_
#define GAVEL_COORDINATOR_CLI_LIVE_WORKLOADS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/profile_run.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// Reads a file of [[workload]] tables. Relative paths start at its folder.
absl::StatusOr<std::vector<ProfileWorkload>> ReadWorkloads(
    const std::string& path);

// Finds the workloads of the file at `path`. An empty `path` means the eight
// trainers of examples/ in sizes for one core, which train until they are
// ended. `types` selects workloads and their order; empty: all. Programs become
// absolute paths: a name without a slash is looked up beside this program, then
// in the PATH. NOT_FOUND: no such type or program.
absl::StatusOr<std::vector<ProfileWorkload>> FindWorkloads(
    const std::string& path, const std::vector<std::string>& types);

// How a workload is started. StartWorkload reads these fields of `worker`: the
// server, the names, the checkpoint directory, further variables, and the
// worker of rank 0.
struct LiveLaunch {
  LaunchWorker worker;
  std::vector<AcceleratorInfo> places;  // by rank
  std::string endpoint;                 // of the LeaseGranter
  // The folder for lock files of accelerators that have no default one.
  std::string run_directory;
  std::string output_path;  // of stdout and stderr
};

using LiveProcesses = std::vector<std::unique_ptr<ChildProcess>>;

// Starts a process for each place, and adds it to `processes`. Errors: those of
// SpawnProcess.
absl::Status StartWorkload(const ProfileWorkload& workload, LiveLaunch launch,
                           LiveProcesses* processes);

// The steps of a worker's process, from the file that GAVEL_TRACE_FILE names
// (iterator/step_profile.h). TracedStep is a value, thread-safe.

// Times of the machine's monotonic clock, the same in all processes.
struct TracedStep {
  Time begin_s = 0;
  Time end_s = 0;
};

// Ascending. INVALID_ARGUMENT as "SOURCE: what; remedy": no such trace, or it
// has lost its first steps.
absl::StatusOr<std::vector<TracedStep>> ParseWorkerTrace(
    std::string_view json, std::string_view source);
// The same of a file. FAILED_PRECONDITION: there is none.
absl::StatusOr<std::vector<TracedStep>> ReadWorkerTrace(
    const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_LIVE_WORKLOADS_H_
