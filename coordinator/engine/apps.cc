#include "coordinator/engine/apps.h"

#include <algorithm>

namespace gavel::engine {

double AppTable::PresenceAt(Time now) const {
  const double since_s = std::max(0.0, now - counted_at_);
  return presence_ + static_cast<double>(present_) * since_s;
}

void AppTable::CountTo(Time now) {
  presence_ = PresenceAt(now);
  counted_at_ = std::max(counted_at_, now);
}

void AppTable::Add(Time now, Job& job) {
  CountTo(now);
  job.presence = presence_;
  if (job.spec.app.empty()) {
    ++present_;
    return;
  }
  const auto [found, added] = apps_.try_emplace({job.spec.owner, job.spec.app},
                                                App{now, presence_, {}});
  if (added) ++present_;
  found->second.jobs.insert(job.id);
}

void AppTable::End(Time now, const Job& job, double alone_s, bool goes_on) {
  CountTo(now);
  if (job.spec.app.empty()) {
    --present_;
    return;
  }
  const auto found = apps_.find({job.spec.owner, job.spec.app});
  if (found == apps_.end()) return;
  App& app = found->second;
  app.ended_longest_s = std::max(app.ended_longest_s, alone_s);
  app.ended_area_s += alone_s * job.spec.scale_factor;
  app.jobs.erase(job.id);
  if (!app.jobs.empty() || goes_on) return;
  apps_.erase(found);
  --present_;
}

const App* AppTable::Find(const Job& job) const {
  if (job.spec.app.empty()) return nullptr;
  const auto found = apps_.find({job.spec.owner, job.spec.app});
  return found == apps_.end() ? nullptr : &found->second;
}

double AppTable::AverageSince(Time began_at, double presence, Time now) const {
  const double since_s = now - began_at;
  const double average = since_s > 0 ? (PresenceAt(now) - presence) / since_s
                                     : static_cast<double>(present_);
  return std::max(1.0, average);
}

double AppTable::AveragePresent(const App& app, Time now) const {
  return AverageSince(app.began_at, app.presence, now);
}

double AppTable::AveragePresent(const Job& job, Time now) const {
  return AverageSince(job.submitted_at, job.presence, now);
}

void AppTable::Rebuild(const JobTable& jobs) {
  if (present_ > 0) return;
  for (const auto& [id, job] : jobs.live()) {
    if (job->state == JobState::kActive || job->state == JobState::kHeld) {
      Add(job->submitted_at, *job);
    }
  }
}

}  // namespace gavel::engine
