// Accelerators on which jobs fail one after the other that run elsewhere: the
// accelerator is at fault, and not they. Told by the lease desk, which drains
// what this finds. Not thread-safe; forgotten by a restart.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKERS_FAILURE_STREAKS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKERS_FAILURE_STREAKS_H_

#include <map>
#include <set>
#include <string>

#include "core/ids.h"

namespace gavel::engine {

class FailureStreaks {
 public:
  // So many different jobs in a row are no chance.
  static constexpr size_t kJobs = 3;

  // A lease of the job there ended well, after steps.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // A process of the job failed there. The jobs of the streak when there are
  // enough, of two users at least where several have active jobs, else none:
  // then it begins anew.
  std::set<JobId> NoteFailure(JobId job, AcceleratorId where,
                              const std::string& owner = "",
                              bool several_users = false);
  // It has ended.
  void Forget(JobId job) { good_on_.erase(job); }

 private:
  std::map<JobId, AcceleratorId> good_on_;  // where it ran well last
  // Jobs with their owners.
  std::map<AcceleratorId, std::map<JobId, std::string>> failed_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_WORKERS_FAILURE_STREAKS_H_
