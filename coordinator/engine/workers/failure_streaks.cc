#include "coordinator/engine/workers/failure_streaks.h"

namespace gavel::engine {

void FailureStreaks::NoteGoodEnd(JobId job, AcceleratorId where) {
  good_on_[job] = where;
  failed_.erase(where);
}

std::set<JobId> FailureStreaks::NoteFailure(JobId job, AcceleratorId where,
                                            const std::string& owner,
                                            bool several_users) {
  const auto good = good_on_.find(job);
  if (good == good_on_.end() || good->second == where) return {};
  std::map<JobId, std::string>& streak = failed_[where];
  streak[job] = owner;
  std::set<JobId> jobs;
  std::set<std::string> owners;
  for (const auto& [id, of] : streak) {
    jobs.insert(id);
    owners.insert(of);
  }
  if (jobs.size() < kJobs || (several_users && owners.size() < 2)) return {};
  streak.clear();
  return jobs;
}

}  // namespace gavel::engine
