// What `gavel local` does: starts a cluster in this process, submits the jobs,
// shows them until all have ended, stops. One call at a time.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_RUN_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_RUN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/cli/daemon/daemon_options.h"

namespace gavel {

struct LocalOptions {
  std::string cluster_path;
  std::vector<std::string> job_paths;  // none: serve until a signal
  // By job, ascending: when it is submitted, seconds after the cluster is
  // there. Empty: all at once.
  std::vector<double> submit_at_s;
  std::string state_directory;
  std::string summary_path;  // empty: none
  std::string listen = "tcp://127.0.0.1:0";
  bool quiet = false;  // nothing is shown
  SchedulingFlags scheduling;
};

// OK when all jobs finished (or there were none, and a signal came). Wrong
// files are found before anything is started. CANCELLED: a signal ended it;
// what is unfinished goes on when the same is run again.
absl::Status RunLocal(const LocalOptions& options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_LOCAL_RUN_H_
