#include "coordinator/engine/workers/failure_streaks.h"

#include <utility>

namespace gavel::engine {

void FailureStreaks::NoteGoodEnd(JobId job, AcceleratorId where) {
  good_on_[job] = where;
  failed_.erase(where);
}

std::set<JobId> FailureStreaks::NoteFailure(JobId job, AcceleratorId where) {
  const auto good = good_on_.find(job);
  if (good == good_on_.end() || good->second == where) return {};
  std::set<JobId>& streak = failed_[where];
  streak.insert(job);
  if (streak.size() < kJobs) return {};
  return std::exchange(streak, {});
}

}  // namespace gavel::engine
