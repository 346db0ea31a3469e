// Runs `gavel local`: starts a cluster in this process, submits the jobs, shows
// them until all have ended, and stops.
#ifndef GAVEL_COORDINATOR_CLI_LOCAL_RUN_H_
#define GAVEL_COORDINATOR_CLI_LOCAL_RUN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/cli/daemon_options.h"
#include "coordinator/cli/table.h"
#include "coordinator/workload/json_fields.h"
#include "core/units.h"

namespace gavel {

// One look at the queue.
struct Look {
  Time at = 0;  // s since the start
  StatusRow status;
  std::vector<QueueRow> rows;  // of the jobs that are told of
};

// Remembers the jobs of `gavel local` while they run, and writes a line for
// each change and the summary. Pure: rows and times in, text out. Not
// thread-safe.
class LocalProgress {
 public:
  // A running job gets a line at least this often.
  static constexpr double kInterval_s = 5;

  // Takes a look, and returns a line for each job that changed its state or
  // accelerator, or was not told of for a while: "[  3.2 s] ...".
  std::vector<std::string> Take(const Look& look);

  // All jobs of the last look: {"rounds", "jobs": [{"name", "state", ...}]}.
  // `leases`: rows of that table of history.
  Json Summary(const Json& leases) const;

  const Look& last() const { return last_; }

 private:
  struct Told {
    std::string what;  // state and place
    Time at = 0;
  };

  Look last_;
  std::map<uint64_t, Told> told_;
};

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

// Runs until all jobs have finished, or a signal comes while there are none:
// OK. Wrong files are found before anything is started. CANCELLED: a signal
// ended it; the same call resumes the unfinished jobs. One call at a time.
absl::Status RunLocal(const LocalOptions& options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_LOCAL_RUN_H_
