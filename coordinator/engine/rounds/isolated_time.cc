#include "coordinator/engine/rounds/isolated_time.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace gavel::engine {

void IsolatedTime::CountIsolated(Time now) {
  const bool all = options_.progress || options_.packing ||
                   changes_.all(Changes::kIsolated) ||
                   isolated_version_ != throughputs_.version();
  const std::vector<JobId> changed = changes_.Take(Changes::kIsolated, jobs_);
  changes_.SetAll(Changes::kIsolated, options_.progress);
  isolated_version_ = throughputs_.version();
  std::vector<Job*> jobs;
  if (all) {
    for (const auto& [id, job] : jobs_.live()) jobs.push_back(job);
  } else {
    for (const JobId id : changed) {
      if (Job* job = jobs_.FindLive(id)) jobs.push_back(job);
    }
  }
  for (Job* job : jobs) SettleIsolated(*job);
  const std::vector<int>& capacity = cluster_.Capacity();
  const double accelerators =
      std::accumulate(capacity.begin(), capacity.end(), 0.0);
  for (auto& [scale_factor, clock] : isolated_clock_) {
    clock += (now - counted_at_) *
             std::max(static_cast<double>(jobs_.active()) * scale_factor,
                      accelerators);
  }
  counted_at_ = now;
  for (Job* job : jobs) {
    if (job->active()) CountIsolated(now, *job);
  }
}

void IsolatedTime::CountIsolated(Time now, Job& job) {
  const std::vector<int>& capacity = cluster_.Capacity();
  const auto jobs = static_cast<double>(jobs_.active());
  double share = 0;
  double steps_per_s = 0;
  double whole_steps_per_s = 0;
  for (size_t type = 0; type < capacity.size(); ++type) {
    const double part = capacity[type] / (jobs * job.spec.scale_factor);
    const double alone =
        throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s;
    share += part;
    steps_per_s += part * alone;
    whole_steps_per_s += capacity[type] * alone;
  }
  steps_per_s /= std::max(1.0, share);
  const double done = figures_.StepsDone(job, now);
  if (steps_per_s > 0 && done > job.isolated_steps) {
    job.isolated_s += (done - job.isolated_steps) / steps_per_s;
  }
  job.isolated_steps = std::max(done, job.isolated_steps);
  if (options_.progress || job.workers.front().held_epoch == 0 ||
      !(whole_steps_per_s > 0)) {
    return;
  }
  // Before it is where it was when its worker failed, nothing counts.
  if (done < job.isolated_steps) return changes_.Touch(job);
  const double pace = figures_.Pace(job);
  job.pace = {pace, pace / whole_steps_per_s, now,
              isolated_clock_[job.spec.scale_factor]};
}

void IsolatedTime::SettleIsolated(Job& job) {
  if (job.pace.steps_per_s > 0) {
    const double clock = isolated_clock_[job.spec.scale_factor];
    const auto total = static_cast<double>(job.spec.steps_total);
    const double done =
        job.isolated_steps + job.pace.steps_per_s * (counted_at_ - job.pace.at);
    job.isolated_s += job.pace.isolated_per_clock * (clock - job.pace.clock);
    job.isolated_steps = total > 0 ? std::min(total, done) : done;
  }
  job.pace = Job::Pace();
}

}  // namespace gavel::engine
