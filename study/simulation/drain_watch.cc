#include "study/simulation/drain_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"

namespace gavel {
namespace {

constexpr double kLookEvery = 0.01;  // of the time of arrivals
constexpr double kGrowth = 1.5;

// Mean of the waiting jobs over [from, to); 0 without samples.
double MeanWaiting(const std::vector<UsageSample>& usage, Time from, Time to) {
  double sum = 0;
  for (size_t i = 0; i < usage.size(); ++i) {
    const Time ends = i + 1 < usage.size() ? usage[i + 1].time_s : to;
    const Time overlap = std::min(ends, to) - std::max(usage[i].time_s, from);
    if (overlap > 0) sum += overlap * usage[i].waiting_jobs;
  }
  return to > from ? sum / (to - from) : 0;
}

}  // namespace

DrainWatch::DrainWatch(const Trace& trace, const SimulationOptions& options,
                       double jct_limit_s)
    : trace_(trace),
      begin_(std::min<size_t>(options.window_begin, trace.jobs.size())),
      end_(std::min<size_t>(options.window_end, trace.jobs.size())),
      jct_limit_s_(jct_limit_s) {
  if (begin_ >= end_) return;
  begins_s_ = trace.jobs[begin_].arrival_s;
  ends_s_ = trace.jobs[end_ - 1].arrival_s;
}

bool DrainWatch::IsDue(Time now) const {
  if (jct_limit_s_ <= 0 || now < begins_s_ + jct_limit_s_) return false;
  return now >= looked_at_ + kLookEvery * std::max(ends_s_, jct_limit_s_);
}

double DrainWatch::JctAtLeast(Time now, const SimulationResult& so_far) const {
  std::vector<double> age_s(end_ - begin_);
  for (size_t i = begin_; i < end_; ++i) {
    age_s[i - begin_] = std::max(0.0, now - trace_.jobs[i].arrival_s);
  }
  for (const UnfitJob& job : so_far.unfit) {
    if (job.job >= begin_ && job.job < end_) age_s[job.job - begin_] = 0;
  }
  for (const SimulatedJob& job : so_far.jobs) {
    if (job.job < begin_ || job.job >= end_) continue;
    if (job.completion_s < kNever) age_s[job.job - begin_] = job.jct_s;
  }
  double sum = 0;
  for (const double age : age_s) sum += age;
  return sum / static_cast<double>(age_s.size());
}

bool DrainWatch::QueueGrows(Time now, const SimulationResult& so_far) const {
  if (so_far.usage.empty()) return true;  // not recorded: the JCT decides
  const Time quarter = (ends_s_ - begins_s_) / 4;
  if (now < begins_s_ + 2 * quarter) return false;
  const double first =
      MeanWaiting(so_far.usage, begins_s_, begins_s_ + quarter);
  const double last = MeanWaiting(so_far.usage, now - quarter, now);
  return last > kGrowth * first + 1;
}

std::string DrainWatch::Look(Time now, const SimulationResult& so_far) {
  looked_at_ = now;
  if (begin_ >= end_) return "";
  const double at_least_s = JctAtLeast(now, so_far);
  if (at_least_s <= jct_limit_s_ || !QueueGrows(now, so_far)) return "";
  return absl::StrFormat(
      "after %.0f h the queue grows and the average JCT is at least %.1f h, "
      "beyond the limit of %.1f h",
      now / 3600, at_least_s / 3600, jct_limit_s_ / 3600);
}

}  // namespace gavel
