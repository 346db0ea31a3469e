#include "coordinator/engine/rounds/isolated_time.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace gavel::engine {

void IsolatedTime::CountChanged(Time now) {
  const bool all = changes_.all(Changes::kIsolated);
  std::vector<Job*> jobs;
  for (const JobId id : changes_.Take(Changes::kIsolated, jobs_)) {
    if (Job* job = jobs_.FindLive(id)) jobs.push_back(job);
  }
  changes_.SetAll(Changes::kIsolated, all);
  Count(now, jobs);
}

void IsolatedTime::CountAll(Time now) {
  const bool all = changes_.all(Changes::kIsolated) ||
                   isolated_version_ != throughputs_.version();
  isolated_version_ = throughputs_.version();
  if (!all) return CountChanged(now);
  changes_.Take(Changes::kIsolated, jobs_);
  std::vector<Job*> jobs;
  for (const auto& [id, job] : jobs_.live()) jobs.push_back(job);
  Count(now, jobs);
}

void IsolatedTime::End(Time now, Job& job) {
  changes_.Touch(job);
  CountChanged(now);
  job.pace = Job::Pace();
}

void IsolatedTime::Count(Time now, const std::vector<Job*>& jobs) {
  for (Job* job : jobs) {
    const Sum sum = SumOf(*job, now);
    job->isolated_s = sum.seconds;
    job->isolated_steps = sum.steps;
  }
  for (auto& [scale_factor, clock] : isolated_clock_) {
    clock += (now - counted_at_) * Parts(scale_factor);
  }
  counted_at_ = now;
  for (Job* job : jobs) SetPace(now, *job);
}

// Until the last count the job ran evenly; since then its steps tell.
IsolatedTime::Sum IsolatedTime::SumOf(const Job& job, Time now) const {
  Sum sum{job.isolated_s, job.isolated_steps};
  if (!job.active()) return sum;
  if (job.pace.steps_per_s > 0) {
    const auto clock = isolated_clock_.find(job.spec.scale_factor);
    if (clock != isolated_clock_.end()) {
      sum.seconds +=
          job.pace.isolated_per_clock * (clock->second - job.pace.clock);
    }
    const auto total = static_cast<double>(job.spec.steps_total);
    const double done =
        sum.steps + job.pace.steps_per_s * (counted_at_ - job.pace.at);
    sum.steps = total > 0 ? std::min(total, done) : done;
  }
  const double done = figures_.StepsDone(job, now);
  if (done <= sum.steps) return sum;
  const double speed = WholeSpeed(job);
  if (speed > 0) {
    sum.seconds += (done - sum.steps) * Parts(job.spec.scale_factor) / speed;
  }
  sum.steps = done;
  return sum;
}

void IsolatedTime::SetPace(Time now, Job& job) {
  const double done = figures_.StepsDone(job, now);  // by its pace until now
  job.pace = Job::Pace();
  const uint64_t epoch = job.workers.front().held_epoch;
  if (!job.active() || epoch == 0) return;
  const double speed = WholeSpeed(job);
  if (!(speed > 0)) return;
  // Before it is where it was when its worker failed, nothing counts.
  if (done < job.isolated_steps) return changes_.Touch(job);
  const double pace = figures_.Pace(job);
  job.pace = {pace, pace / speed, now, isolated_clock_[job.spec.scale_factor],
              epoch};
}

double IsolatedTime::Parts(int scale_factor) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  return std::max(static_cast<double>(jobs_.active()) * scale_factor,
                  std::accumulate(capacity.begin(), capacity.end(), 0.0));
}

double IsolatedTime::WholeSpeed(const Job& job) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  double steps_per_s = 0;
  for (size_t type = 0; type < capacity.size(); ++type) {
    steps_per_s += capacity[type] *
                   throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s;
  }
  return steps_per_s;
}

}  // namespace gavel::engine
