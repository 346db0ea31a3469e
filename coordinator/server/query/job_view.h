// A job as `gavel queue` and `gavel why` show it: copied from the engine on the
// event loop, made into a row (rows.h) on any thread. Values; the functions are
// pure.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_JOB_VIEW_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_JOB_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/waiting_line.h"
#include "coordinator/server/access/roles.h"
#include "coordinator/server/query/rows.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// What the job file says: the same from view to view.
struct JobFacts {
  std::string name;
  std::string app;
  std::string entity;
  std::string owner;
  std::string checkpoint_directory;
  double weight = 1;
  int scale_factor_asked = 1;
  int scale_factor_min = 1;
  int scale_factor_max = 1;
  uint64_t steps_total = 0;
};

// What the ranks of a gang report, as one: they step together, so counts of
// steps are those of the slowest, and counts of pauses those of any.
struct JobProgress {
  uint64_t steps_done = 0;
  double steps_per_s = 0;  // 0 unless running
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t incarnations = 0;
  Generation last_generation;
};

struct JobView {
  JobId id;
  std::shared_ptr<const JobFacts> facts;
  std::string_view state;  // StateLetters
  // Of a Priority, its place in line is told by a WaitingLine.
  Reason reason;
  // Behind the reason, and where its tensors are; mostly empty.
  std::string notes;
  std::string memory;
  int scale_factor = 1;
  JobProgress progress;
  std::vector<HeldAcceleratorRow> held;  // the first kAcceleratorsPerRowMax
  Named<double> scalars;
  JobShares shares;
  double received_s = 0;
  Time submitted_at = 0;
  Time ended_at = 0;
  double submitted_wall_s = 0;  // since 1970
  double ended_wall_s = 0;
  bool over = false;     // finished or cancelled
  bool settled = false;  // over, and its last process has ended
  uint64_t epoch = 0;
  int failures_in_a_row = 0;
  int last_end = 0;  // as Job::last_end
};

// `before`: of an earlier view of the job, for what has not changed; may be
// null. Its cost does not grow with the number of jobs.
JobView ViewOf(const Job& job, const Engine& engine, Time now,
               std::shared_ptr<const JobFacts> before);

// The queue's row of the job, as of `now`, for `reader`: words of the program
// and of the job file only where it may read them. Fills one that may have been
// another job's, which saves allocations.
void FillQueueRow(const JobView& job, const WaitingLine& line, Time now,
                  const Identity& reader, QueueRow* row);

// What `gavel why` adds; of one job alone.
std::vector<ThroughputRow> ThroughputsOf(const Job& job, const Engine& engine);
WhyRow WhyRowOf(const JobView& job, const WaitingLine& line,
                const Identity& reader, std::vector<ThroughputRow> throughputs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_JOB_VIEW_H_
