// Whose turn it is: the places in line of jobs that wait, by accelerator type.
// Made of the rows of a round, once for all jobs; whoever tells people about
// jobs has one. Pure; immutable once made, so that any thread may read it.
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
  // `rows`: Engine::LineRows; `types` of the cluster; rounds that are this
  // long. O(rows log rows).
  WaitingLine(const RoundTable& rows, std::vector<std::string> types,
              double round_duration_s);

  // Completes a Priority: the type that the job is nearest to its
  // turn on, and how many go before it there, plus one. A job that is in no
  // line has no share: NotInAllocation.
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
