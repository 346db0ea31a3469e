#include "coordinator/engine/state/changes.h"

#include <algorithm>
#include <utility>

namespace gavel::engine {

void Changes::Touch(Job& job) {
  // Once is enough: types count as filled only after a plan has been made.
  if ((job.touched & (1u << kPlan)) == 0 && filled_.any()) {
    filled_.Forget(job.chosen);
  }
  for (size_t reader = 0; reader < changes_.size(); ++reader) {
    const auto bit = static_cast<uint8_t>(1u << reader);
    if ((job.touched & bit) != 0) continue;
    job.touched |= bit;
    changes_[reader].jobs.push_back(job.id);
  }
}

void Changes::TouchAll() {
  for (JobChanges& changes : changes_) changes.all = true;
  ForgetTypes();
}

std::vector<JobId> Changes::Take(Reader reader, const JobTable& jobs) {
  std::vector<JobId> changed =
      std::exchange(changes_[reader], {{}, false}).jobs;
  for (const JobId id : changed) {
    if (Job* job = jobs.Find(id)) {
      job->touched &= static_cast<uint8_t>(~(1u << reader));
    }
  }
  std::sort(changed.begin(), changed.end());
  // After a restore the jobs do not know that they are noted.
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return changed;
}

void Changes::ForgetType(size_t type) {
  filled_.Forget(type);
  idle_.types.Forget(type);
}

void Changes::ForgetTypes() {
  filled_.Forget();
  idle_.types.Forget();
}

void Changes::Rebuild() {
  SetAll(kPlan, true);
  SetAll(kProblem, true);
  SetAll(kFill, true);
}

}  // namespace gavel::engine
