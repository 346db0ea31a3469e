// The places of waiting jobs in line, by accelerator type. Computed once for
// all jobs from the rows of a round; code that explains jobs to people keeps
// one. Pure; immutable once made, so that any thread may read it.
#ifndef GAVEL_COORDINATOR_ENGINE_WAITING_LINE_H_
#define GAVEL_COORDINATOR_ENGINE_WAITING_LINE_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"

namespace gavel {

class WaitingLine {
 public:
  WaitingLine() = default;
  // `rows` are those of Engine::LineRows, `types` those of the cluster, and
  // rounds have this length. O(rows log rows).
  WaitingLine(const RoundTable& rows, std::vector<std::string> types,
              double round_duration_s);

  // Completes a Priority: sets the type on which the job is nearest to its
  // turn, and its place in line there (1: next). A job that is in no line has
  // no share, and gets the reason NotInAllocation.
  void Tell(JobId job, Reason* reason) const;

 private:
  struct Place {
    size_t type = 0;
    int number = 1;
  };
  std::vector<std::string> types_;
  std::vector<std::pair<JobId, Place>> places_;  // ascending
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_WAITING_LINE_H_
