// What `gavel local` remembers of its jobs while they run, and tells of them:
// lines for what changed, and the summary. Pure: rows and times in, text out.
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_PROGRESS_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_PROGRESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/cli/json.h"
#include "coordinator/cli/rows.h"
#include "core/units.h"

namespace gavel {

// One look at the queue.
struct Look {
  Time at = 0;  // s since the start
  StatusRow status;
  std::vector<QueueRow> rows;  // of the jobs that are told of
};

class LocalProgress {
 public:
  // A running job is told of at least this often.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_PROGRESS_H_
